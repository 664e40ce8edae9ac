// Data of kind "image_folder": JPEG and PNG files, in a folder for each label. Labels are the numbers of the folders,
// sorted by name. Sample i is the i-th of all files sorted by path, after they were permuted as sample_order(0, files)
// does in epoch 0: so that the last ones, which validation takes, are of all labels.

#include "gpu/data/datasets.hpp"
#include "gpu/data/picture.hpp"
#include "protocols/model/seed.hpp"

#include <algorithm>

namespace parcae {

namespace {

/// In a folder, at whatever depth.
bool is_labelled(std::string_view name) {
  return name.find('/') != name.npos && is_picture(name);
}

std::string_view label_in(std::string_view name) {
  return name.substr(0, name.find('/'));
}

class image_folder_dataset final : public file_dataset {
public:
  image_folder_dataset(const std::filesystem::path& path, const data_specification& data,
                       const model_specification& model) :
      file_dataset(path, is_labelled),
      size_(model.image), channels_(model.channels), resize_(data.resize == 0 ? model.image : data.resize),
      augment_(data.augment), flip_(data.flip) {
    const auto& files = files_.all();
    if (files.empty() || files.front().name.empty())
      fail_data(path, "has no images: *.jpg, *.jpeg and *.png, in a folder for each label");
    std::vector<std::string_view> labels;
    for (std::size_t i = 0; i < files.size(); ++i) {
      // Sorted by path, "a b/" comes before "a/", but the name "a" before "a b".
      labels.push_back(label_in(files[i].name));
      if (files[i].size > picture_file_limit)
        fail_data(files_.path_of(i), "has " + std::to_string(files[i].size) + " bytes, an image has at most " +
                                         std::to_string(picture_file_limit));
    }
    auto names = labels;
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.size() > model.classes)
      fail_data(path, "has " + std::to_string(names.size()) + " folders with images, the model has " +
                          std::to_string(model.classes) + " classes");
    for (auto x : labels)
      labels_.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(names, x) - names.begin()));
    sample_order order(0, files.size());
    for (std::size_t i = 0; i < files.size(); ++i)
      order_.push_back(static_cast<std::uint32_t>(order(i)));
  }

  std::uint64_t size() const override { return order_.size(); }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    if (!begin(index, input, target))
      return;
    const auto image = decoded(order_[index]);
    resize_part(image, central_part(image, size_, resize_), size_, input);
  }

  void read_augmented(std::uint64_t index, std::uint64_t seed, std::span<std::int64_t> input,
                      std::span<std::int64_t> target) const override {
    if (!begin(index, input, target))
      return;
    const auto image = decoded(order_[index]);
    const auto part =
        augment_ == "crop" ? random_part(image, mix_seed(seed, "crop", {})) : central_part(image, size_, resize_);
    resize_part(image, part, size_, input);
    if (augment_ == "shift")
      shift(input, mix_seed(seed, "shift", {}));
    if (flip_ && mix_seed(seed, "flip", {}) % 2 == 1)
      for (auto row = input.begin(); row != input.end(); row += size_)
        std::reverse(row, row + size_);
  }

  void expect(std::uint64_t index) const override { files_.expect(order_[index], 0, files_.all()[order_[index]].size); }

  std::string file_of(std::uint64_t index) const override { return files_.path_of(order_[index]).string(); }

private:
  /// The label; false if that is all.
  bool begin(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const {
    check_extents(*this, index, input.size(), target.size(), std::size_t{channels_} * size_ * size_, 1);
    target[0] = labels_[order_[index]];
    return !input.empty();
  }

  picture decoded(std::size_t file) const {
    std::vector<std::byte> bytes(files_.all()[file].size);
    files_.read(file, 0, bytes);
    try {
      return decode_picture(bytes, channels_);
    } catch (const std::runtime_error& e) {
      fail_sample(files_.path_of(file), e.what());
    }
  }

  /// By up to an eighth each way; black comes in.
  void shift(std::span<std::int64_t> image, std::uint64_t seed) const {
    const std::int64_t size = size_, most = size / 8, choices = 2 * most + 1;
    const auto right = static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(choices)) - most;
    const auto down = static_cast<std::int64_t>(seed / 65'536 % static_cast<std::uint64_t>(choices)) - most;
    const std::vector<std::int64_t> from(image.begin(), image.end());
    auto to = image.begin();
    for (std::int64_t c = 0; c < channels_; ++c)
      for (auto y = -down; y < size - down; ++y)
        for (auto x = -right; x < size - right; ++x)
          *to++ =
              x >= 0 && x < size && y >= 0 && y < size ? from[static_cast<std::size_t>((c * size + y) * size + x)] : 0;
  }

  std::uint32_t size_; ///< height and width
  std::uint32_t channels_;
  std::uint32_t resize_;
  std::string augment_;
  bool flip_;
  std::vector<std::uint32_t> labels_; ///< by file
  std::vector<std::uint32_t> order_;  ///< files by sample
};

} // namespace

std::shared_ptr<const dataset> open_image_folder(const std::filesystem::path& path, const data_specification& data,
                                                 const model_specification& model) {
  return std::make_shared<image_folder_dataset>(path, data, model);
}

} // namespace parcae
