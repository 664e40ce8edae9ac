#pragma once

// The kinds of data, for load_dataset.

#include "gpu/data/data_files.hpp"

namespace parcae {

std::shared_ptr<const dataset> open_tokens(const std::filesystem::path& path, const data_specification& data,
                                           const model_specification& model);
std::shared_ptr<const dataset> open_images(const std::filesystem::path& path, const model_specification& model);
std::shared_ptr<const dataset> open_image_folder(const std::filesystem::path& path, const data_specification& data,
                                                 const model_specification& model);
std::shared_ptr<const dataset> open_columns(const std::filesystem::path& path, const model_specification& model);
std::shared_ptr<const dataset> make_synthetic(const data_specification& data, const model_specification& model);

/// Of one image, or of one synthetic one.
std::size_t pixels_of(const model_specification& model);

/// Throws std::out_of_range unless the index is below data.size() and the extents are right; none of inputs is right.
void check_extents(const dataset& data, std::uint64_t index, std::size_t input, std::size_t target,
                   std::size_t right_input, std::size_t right_target);

/// Data that is files.
class file_dataset : public dataset {
public:
  const std::string& digest() const override { return files_.digest(); }
  std::string whole_digest(const std::atomic<bool>& stop) const override { return files_.whole_digest(stop); }
  bool spoiled() const override { return files_.spoiled(); }

protected:
  explicit file_dataset(const std::filesystem::path& path, const std::function<bool(std::string_view)>& wanted = {}) :
      files_(path, wanted) {}

  data_files files_;
};

} // namespace parcae
