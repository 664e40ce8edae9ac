// Data of kind "columns": what parcae_model.export_dataset wrote.

#include "gpu/data/columns.hpp"
#include "gpu/data/datasets.hpp"
#include "protocols/model/model_description.hpp"

#include <algorithm>

namespace parcae {

namespace {

std::int64_t value_of(const std::byte* from, const column& x) {
  std::uint64_t value = 0;
  for (auto i = x.bytes; i-- > 0;)
    value = value << 8 | static_cast<std::uint64_t>(from[i]);
  const auto unused = 64 - 8 * x.bytes;
  return x.is_signed ? static_cast<std::int64_t>(value << unused) >> unused : static_cast<std::int64_t>(value);
}

class column_dataset final : public file_dataset {
public:
  column_dataset(const std::filesystem::path& path, const model_specification& model) :
      file_dataset(path, [](std::string_view name) { return name == "samples.bin" || name == "samples.json"; }) {
    if (files_.all().size() != 2)
      fail_data(path, "has no samples.json and samples.bin, as parcae_model.export_dataset writes them");
    const auto text_bytes = files_.all()[1].size;
    if (text_bytes > columns_text_limit) // before memory is taken: a file with holes may be of any size
      fail_data(files_.path_of(1), "has more than " + std::to_string(columns_text_limit) + " bytes");
    std::string text(text_bytes, '\0');
    files_.read(1, 0, std::as_writable_bytes(std::span(text)));
    try {
      layout_ = parse_columns(text);
    } catch (const std::runtime_error& e) {
      fail_data(files_.path_of(1), e.what());
    }
    const auto bytes = files_.all()[0].size;
    if (bytes % layout_.sample_bytes() != 0 || bytes / layout_.sample_bytes() != layout_.samples)
      fail_data(files_.path_of(0), "has " + std::to_string(bytes) + " bytes; samples.json says " +
                                       std::to_string(layout_.samples) + " samples of " +
                                       std::to_string(layout_.sample_bytes()));
    take_columns(model);
    std::vector<std::int64_t> input(inputs_), target(layout_.targets.values());
    const auto step = files_.held() ? 1 : std::max<std::uint64_t>(1, size() / 64);
    for (std::uint64_t i = 0; i < size(); i += step)
      read(i, input, target);
  }

  std::uint64_t size() const override { return layout_.samples; }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    check_extents(*this, index, input.size(), target.size(), inputs_, layout_.targets.values());
    std::vector<std::byte> bytes(layout_.sample_bytes());
    files_.read(0, index * bytes.size(), bytes);
    const auto take = [&](const column& x, const std::byte* from, std::span<std::int64_t> to) {
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = value_of(from + i * x.bytes, x);
    };
    const auto& targets = layout_.targets;
    take(targets, bytes.data() + bytes.size() - targets.values() * targets.bytes, target);
    check(target, targets, target_limit_, index, true);
    if (input.empty())
      return;
    auto rest = input;
    for (const auto& [x, at] : taken_) {
      take(*x, bytes.data() + at, rest.first(x->values()));
      rest = rest.subspan(x->values());
    }
    check(input.first(taken_.front().first->values()), *taken_.front().first, input_limit_, index, false);
  }

  void expect(std::uint64_t index) const override {
    files_.expect(0, index * layout_.sample_bytes(), layout_.sample_bytes());
  }

  std::string file_of(std::uint64_t) const override { return files_.path_of(0).string(); }

private:
  /// What the model takes, in its order.
  void take_columns(const model_specification& model) {
    const auto description = describe(model);
    std::vector<std::uint64_t> at;
    std::uint64_t next = 0;
    for (const auto& x : layout_.inputs) {
      at.push_back(next);
      next += x.values() * x.bytes;
    }
    const auto json_path = files_.path_of(1);
    const auto take = [&](std::size_t i, const std::vector<std::int64_t>& shape) {
      const auto& x = layout_.inputs[i];
      if (x.shape != shape)
        fail_data(json_path, "its column " + x.name + " is of shape " + to_string(x.shape) + ", the model takes " +
                                 to_string(shape));
      taken_.emplace_back(&x, at[i]);
      inputs_ += x.values();
    };
    take(0, description.input);
    for (const auto& wanted : description.extras) {
      const auto found =
          std::ranges::find(layout_.inputs.begin() + 1, layout_.inputs.end(), wanted.name, &column::name);
      if (found == layout_.inputs.end())
        fail_data(json_path, "has no column " + wanted.name + ", which the model takes");
      take(static_cast<std::size_t>(found - layout_.inputs.begin()), wanted.shape);
    }
    for (const auto& x : layout_.inputs)
      if (std::ranges::none_of(taken_, [&](const auto& y) { return y.first == &x; }))
        fail_data(json_path, "has a column " + x.name +
                                 " that the model does not take; export the data without it, or the "
                                 "model with it");
    if (layout_.targets.values() != description.targets)
      fail_data(json_path, "its column " + layout_.targets.name + " has " + std::to_string(layout_.targets.values()) +
                               " values for a sample, the model's targets are " + std::to_string(description.targets));
    input_limit_ = model.of_images() ? 256 : model.vocabulary;
    if (description.loss == loss_kind::cross_entropy)
      target_limit_ = description.layers.back().output.back();
  }

  static std::string to_string(const std::vector<std::int64_t>& shape) {
    std::string result;
    for (auto extent : shape)
      result += (result.empty() ? "" : ", ") + std::to_string(extent);
    return "[" + result + "]";
  }

  void check(std::span<const std::int64_t> values, const column& x, std::int64_t limit, std::uint64_t index,
             bool targets) const {
    if (limit == 0)
      return;
    const auto bad = std::ranges::find_if(
        values, [&](auto value) { return !((value >= 0 && value < limit) || (targets && value == no_target)); });
    if (bad != values.end())
      fail_sample(files_.path_of(0), "sample " + std::to_string(index) + " (at byte " +
                                         std::to_string(index * layout_.sample_bytes()) + ") has in " + x.name +
                                         " the value " + std::to_string(*bad) + ", the model takes 0 to " +
                                         std::to_string(limit - 1));
  }

  column_layout layout_;
  std::vector<std::pair<const column*, std::uint64_t>> taken_; ///< with its place in a sample's bytes
  std::uint64_t inputs_ = 0;                                   ///< values
  std::int64_t input_limit_ = 0;                               ///< values are below; 0: any
  std::int64_t target_limit_ = 0;                              ///< likewise
};

} // namespace

std::shared_ptr<const dataset> open_columns(const std::filesystem::path& path, const model_specification& model) {
  return std::make_shared<column_dataset>(path, model);
}

} // namespace parcae
