// Data of kind "images": CIFAR-10's binary format.

#include "gpu/data/datasets.hpp"

#include <algorithm>

namespace parcae {

namespace {

class binary_image_dataset final : public file_dataset {
public:
  binary_image_dataset(const std::filesystem::path& path, const model_specification& model) :
      file_dataset(path, [](std::string_view name) { return name.ends_with(".bin"); }), record_(1 + pixels_of(model)),
      classes_(model.classes) {
    for (std::size_t i = 0; i < files_.all().size(); ++i) {
      const auto size = files_.all()[i].size;
      if (size % record_ != 0)
        fail_data(files_.path_of(i), "has " + std::to_string(size) + " bytes, not a multiple of " +
                                         std::to_string(record_) + ", one image with its label");
      first_.push_back(size_);
      size_ += size / record_;
    }
    if (size_ == 0)
      fail_data(path, "has no images (files named *.bin)");
    std::int64_t label = 0;
    for (std::uint64_t i = 0; files_.held() && i < size_; ++i)
      read(i, {}, {&label, 1});
  }

  std::uint64_t size() const override { return size_; }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    check_extents(*this, index, input.size(), target.size(), record_ - 1, 1);
    const auto file = file_number(index);
    std::vector<std::byte> bytes(1 + input.size());
    files_.read(file, (index - first_[file]) * record_, bytes);
    target[0] = static_cast<std::int64_t>(bytes[0]);
    if (target[0] >= classes_)
      fail_sample(files_.path_of(file), "image " + std::to_string(index - first_[file]) + " has label " +
                                            std::to_string(target[0]) + ", the model has " + std::to_string(classes_) +
                                            " classes");
    std::transform(bytes.end() - static_cast<std::ptrdiff_t>(input.size()), bytes.end(), input.begin(),
                   [](std::byte x) { return static_cast<std::int64_t>(x); });
  }

  void expect(std::uint64_t index) const override {
    const auto file = file_number(index);
    files_.expect(file, (index - first_[file]) * record_, record_);
  }

  std::string file_of(std::uint64_t index) const override { return files_.path_of(file_number(index)).string(); }

private:
  std::size_t file_number(std::uint64_t index) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(first_, index) - first_.begin()) - 1;
  }

  std::uint64_t record_; ///< bytes
  std::int64_t classes_;
  std::vector<std::uint64_t> first_; ///< image of each file
  std::uint64_t size_ = 0;
};

} // namespace

std::size_t pixels_of(const model_specification& model) {
  return std::size_t{model.channels} * model.image * model.image;
}

std::shared_ptr<const dataset> open_images(const std::filesystem::path& path, const model_specification& model) {
  return std::make_shared<binary_image_dataset>(path, model);
}

} // namespace parcae
