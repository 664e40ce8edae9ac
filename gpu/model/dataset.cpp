#include "gpu/model/dataset.hpp"

#include "gpu/model/seed.hpp"
#include "gpu/model/sha256.hpp"
#include "protocols/base/input_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw std::runtime_error("data " + path.string() + ": " + reason);
}

/// Relative paths of the regular files below a folder, unsorted. Own recursion: an error of the standard one does not
/// say which folder it could not read.
void list_files(const fs::path& root, const fs::path& relative, std::vector<std::string>& files) {
  const auto folder = relative.empty() ? root : root / relative;
  std::error_code error;
  fs::directory_iterator entries{folder, error};
  for (; !error && entries != fs::directory_iterator{}; entries.increment(error)) {
    auto path = relative / entries->path().filename();
    auto status = entries->symlink_status(error);
    if (error)
      fail(root / path, error.message());
    if (fs::is_directory(status))
      list_files(root, path, files);
    else if (fs::is_regular_file(status))
      files.push_back(path.generic_string());
  }
  if (error)
    fail(folder, error.message());
}

/// Appends a whole file and returns its size.
std::size_t append_file(const fs::path& path, bool follow, std::string& bytes) {
  try {
    input_file file(path, follow);
    const auto start = bytes.size();
    // One byte beyond the expected size, so that the read that finds the end needs no further room.
    for (std::size_t room = static_cast<std::size_t>(file.size()) + 1;; room = 1 << 16) {
      const auto begin = bytes.size();
      bytes.resize(begin + room);
      const auto n = file.read(std::as_writable_bytes(std::span(bytes).subspan(begin)));
      bytes.resize(begin + n);
      if (n < room)
        return bytes.size() - start;
    }
  } catch (const input_error& e) {
    fail(path, e.reason);
  }
}

struct file_bytes {
  std::string bytes; ///< of all files, one after the other
  std::string digest;
};

/// Reads the files of the data. `check` is called with each file's path and size.
template <class Check>
file_bytes read_files(const fs::path& path, std::string_view suffix, Check&& check) {
  std::error_code error;
  auto status = fs::status(path, error); // a link given by the user is followed, those inside a folder are not
  if (status.type() == fs::file_type::not_found)
    fail(path, "no such file or folder");
  if (error)
    fail(path, error.message());
  file_bytes result;
  sha256 digest;
  auto add = [&](const std::string& name, const fs::path& file, bool follow) {
    const auto start = result.bytes.size();
    const auto size = append_file(file, follow, result.bytes);
    check(file, size);
    digest.add(name);
    digest.add(std::string_view("\0", 1));
    digest.add(std::to_string(size));
    digest.add(std::string_view("\0", 1));
    digest.add(std::string_view(result.bytes).substr(start));
  };
  if (fs::is_directory(status)) {
    std::vector<std::string> files;
    list_files(path, {}, files);
    std::erase_if(files, [&](const std::string& name) { return !name.ends_with(suffix); });
    std::sort(files.begin(), files.end());
    for (const auto& file : files)
      add(file, path / file, false);
  } else {
    add("", path, true);
  }
  result.bytes.shrink_to_fit();
  result.digest = digest.hexadecimal();
  return result;
}

void check_sizes(const dataset& data, std::uint64_t index, std::size_t input, std::size_t target,
                 std::size_t right_input, std::size_t right_target) {
  if (index >= data.size() || input != right_input || target != right_target)
    throw std::out_of_range("sample " + std::to_string(index) + " of " + std::to_string(data.size()) + " into " +
                            std::to_string(input) + " and " + std::to_string(target) + " values");
}

/// Tokens of 1 or 2 bytes.
template <class Token>
class token_dataset : public dataset {
public:
  token_dataset(const fs::path& path, const model_specification& model) :
      sequence_(model.sequence), files_(read_files(path, "", [](const fs::path& file, std::size_t size) {
        if (size % sizeof(Token) != 0)
          fail(file, "has " + std::to_string(size) + " bytes, tokens have 2");
      })) {
    const auto tokens = files_.bytes.size() / sizeof(Token);
    if (tokens <= sequence_)
      fail(path, "has " + std::to_string(tokens) + " tokens, one sample needs " + std::to_string(sequence_ + 1));
    for (std::size_t i = 0; i < tokens; ++i)
      if (token(i) >= model.vocabulary)
        fail(path, "token " + std::to_string(i) + " is " + std::to_string(token(i)) + ", the vocabulary has " +
                       std::to_string(model.vocabulary));
  }

  const std::string& digest() const override { return files_.digest; }

  std::uint64_t size() const override { return (files_.bytes.size() / sizeof(Token) - 1) / sequence_; }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    check_sizes(*this, index, input.size(), target.size(), sequence_, sequence_);
    for (std::uint64_t i = 0; i < sequence_; ++i) {
      input[i] = token(index * sequence_ + i);
      target[i] = token(index * sequence_ + i + 1);
    }
  }

private:
  std::int64_t token(std::uint64_t place) const {
    std::int64_t value = 0;
    for (auto i = sizeof(Token); i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(files_.bytes[place * sizeof(Token) + i]);
    return value;
  }

  std::uint64_t sequence_;
  file_bytes files_;
};

std::size_t pixels_of(const model_specification& model) {
  return std::size_t{model.channels} * model.image * model.image;
}

class image_dataset : public dataset {
public:
  image_dataset(const fs::path& path, const model_specification& model) :
      record_(1 + pixels_of(model)), files_(read_files(path, ".bin", [&](const fs::path& file, std::size_t size) {
        if (size % record_ != 0)
          fail(file, "has " + std::to_string(size) + " bytes, not a multiple of " + std::to_string(record_) +
                         ", one image with its label");
      })) {
    if (files_.bytes.empty())
      fail(path, "has no images (files named *.bin)");
    for (std::uint64_t i = 0; i < size(); ++i)
      if (label(i) >= model.classes)
        fail(path, "image " + std::to_string(i) + " has label " + std::to_string(label(i)) + ", the model has " +
                       std::to_string(model.classes) + " classes");
  }

  const std::string& digest() const override { return files_.digest; }

  std::uint64_t size() const override { return files_.bytes.size() / record_; }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    check_sizes(*this, index, input.size(), target.size(), record_ - 1, 1);
    const auto* pixel = reinterpret_cast<const unsigned char*>(files_.bytes.data()) + index * record_ + 1;
    std::copy_n(pixel, record_ - 1, input.begin());
    target[0] = label(index);
  }

private:
  std::int64_t label(std::uint64_t index) const { return static_cast<unsigned char>(files_.bytes[index * record_]); }

  std::size_t record_; ///< bytes
  file_bytes files_;
};

class synthetic_dataset : public dataset {
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

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    std::mt19937_64 random{mix_seed(data_.seed, "synthetic", {index})};
    if (model_.of_images()) {
      check_sizes(*this, index, input.size(), target.size(), pixels_of(model_), 1);
      draw_image(random, input, target[0]);
    } else {
      check_sizes(*this, index, input.size(), target.size(), model_.sequence, model_.sequence);
      draw_tokens(random, input, target);
    }
  }

private:
  void draw_tokens(std::mt19937_64& random, std::span<std::int64_t> input, std::span<std::int64_t> target) const {
    const std::uint64_t vocabulary = model_.vocabulary;
    auto token = random() % vocabulary;
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = static_cast<std::int64_t>(token);
      token = random() % 4 < 3 ? (token + 1) % vocabulary : random() % vocabulary;
      target[i] = static_cast<std::int64_t>(token);
    }
  }

  void draw_image(std::mt19937_64& random, std::span<std::int64_t> pixels, std::int64_t& label) const {
    const auto class_number = random() % model_.classes;
    label = static_cast<std::int64_t>(class_number);
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

std::shared_ptr<const dataset> load(const data_specification& data, const model_specification& model) {
  if (data.kind == "text")
    return std::make_shared<token_dataset<std::uint8_t>>(data.path, model);
  if (data.kind == "tokens")
    return std::make_shared<token_dataset<std::uint16_t>>(data.path, model);
  if (data.kind == "images")
    return std::make_shared<image_dataset>(data.path, model);
  if (data.kind == "synthetic")
    return std::make_shared<synthetic_dataset>(data, model);
  throw std::runtime_error("data of kind \"" + data.kind + "\" is not known");
}

} // namespace

void require_within(const fs::path& path, const std::vector<fs::path>& folders) {
  if (folders.empty())
    return;
  std::error_code error;
  const auto real = fs::canonical(path, error);
  if (error)
    fail(path, error == std::errc::no_such_file_or_directory ? "no such file or folder" : error.message());
  std::string allowed;
  for (const auto& folder : folders) {
    const auto below = fs::canonical(folder, error);
    if (!error && std::ranges::mismatch(below, real).in1 == below.end())
      return;
    allowed += (allowed.empty() ? "" : ", ") + folder.string();
  }
  fail(path, "is not below what this node lets jobs read: --data " + allowed);
}

std::shared_ptr<const dataset> load_dataset(const data_specification& data, const model_specification& model,
                                            const std::vector<fs::path>& folders) {
  if (data.kind != "synthetic")
    require_within(data.path, folders);
  auto result = load(data, model);
  if (data.validation >= result->size())
    fail(data.path, "has " + std::to_string(result->size()) + " samples, and " + std::to_string(data.validation) +
                        " are to be kept for validation");
  return result;
}

sample_order::sample_order(std::uint64_t seed, std::uint64_t size) : seed_(seed), size_(size) {
  if (size == 0 || size > UINT32_MAX)
    throw std::invalid_argument("an epoch of " + std::to_string(size) + " samples");
}

std::uint64_t sample_order::operator()(std::uint64_t number) {
  const auto epoch = number / size_;
  if (recent_[0].epoch != epoch) {
    std::swap(recent_[0], recent_[1]);
    if (recent_[0].epoch != epoch) {
      auto& order = recent_[0].order;
      order.resize(size_);
      std::iota(order.begin(), order.end(), 0u);
      std::mt19937_64 random{mix_seed(seed_, "epoch", {epoch})};
      for (auto i = size_ - 1; i > 0; --i)
        std::swap(order[i], order[random() % (i + 1)]);
      recent_[0].epoch = epoch;
    }
  }
  return recent_[0].order[number % size_];
}

} // namespace parcae
