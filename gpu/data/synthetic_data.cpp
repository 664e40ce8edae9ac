// Data of kind "synthetic": made up, and learnable.

#include "gpu/data/datasets.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/model/seed.hpp"

#include <array>
#include <random>

namespace parcae {

namespace {

class synthetic_dataset final : public dataset {
public:
  synthetic_dataset(const data_specification& data, const model_specification& model) : data_(data), model_(model) {
    sha256 digest;
    std::string what = model.of_images() ? "synthetic images" : "synthetic tokens";
    for (std::uint64_t x : {data.samples, data.seed, std::uint64_t{model.sequence}, std::uint64_t{model.vocabulary},
                            std::uint64_t{model.image}, std::uint64_t{model.channels}, std::uint64_t{model.classes}})
      what += " " + std::to_string(x);
    digest.add(what);
    digest_ = digest.hexadecimal();
  }

  const std::string& digest() const override { return digest_; }

  std::uint64_t size() const override { return data_.samples; }

  std::string whole_digest(const std::atomic<bool>&) const override { return {}; }

  std::string file_of(std::uint64_t) const override { return "synthetic"; }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    std::mt19937_64 random{mix_seed(data_.seed, "synthetic", {index})};
    if (model_.of_images()) {
      check_extents(*this, index, input.size(), target.size(), pixels_of(model_), 1);
      draw_image(random, input, target[0]);
    } else {
      check_extents(*this, index, input.size(), target.size(), model_.sequence, model_.sequence);
      draw_tokens(random, input, target);
    }
  }

private:
  void draw_tokens(std::mt19937_64& random, std::span<std::int64_t> input, std::span<std::int64_t> target) const {
    const std::uint64_t vocabulary = model_.vocabulary;
    auto token = random() % vocabulary;
    for (std::size_t i = 0; i < target.size(); ++i) {
      if (!input.empty())
        input[i] = static_cast<std::int64_t>(token);
      token = random() % 4 < 3 ? (token + 1) % vocabulary : random() % vocabulary;
      target[i] = static_cast<std::int64_t>(token);
    }
  }

  void draw_image(std::mt19937_64& random, std::span<std::int64_t> pixels, std::int64_t& label) const {
    const auto class_number = random() % model_.classes;
    label = static_cast<std::int64_t>(class_number);
    if (pixels.empty())
      return;
    std::array<std::uint64_t, 16> cells;
    std::size_t place = 0;
    for (std::uint32_t channel = 0; channel < model_.channels; ++channel) {
      for (std::uint64_t cell = 0; cell < cells.size(); ++cell)
        cells[cell] = mix_seed(data_.seed, "class", {class_number, channel, cell}) % 256;
      for (std::uint32_t y = 0; y < model_.image; ++y)
        for (std::uint32_t x = 0; x < model_.image; ++x) {
          const auto cell = y * 4 / model_.image * 4 + x * 4 / model_.image;
          pixels[place++] = static_cast<std::int64_t>((cells[cell] + random() % 256) / 2);
        }
    }
  }

  data_specification data_;
  model_specification model_;
  std::string digest_;
};

} // namespace

std::shared_ptr<const dataset> make_synthetic(const data_specification& data, const model_specification& model) {
  return std::make_shared<synthetic_dataset>(data, model);
}

} // namespace parcae
