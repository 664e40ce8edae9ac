#pragma once

// Data of several kinds in a folder of its own, which goes with it.

#include <cstdint>
#include <filesystem>
#include <string>

namespace parcae {

class data_folder {
public:
  data_folder();
  ~data_folder();
  data_folder(const data_folder&) = delete;
  data_folder& operator=(const data_folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Each makes what it returns the path of.
  std::string large_tokens() const;                  ///< of four bytes, below 256; more than is held in memory
  std::string few_tokens() const;                    ///< likewise, 4000 of them
  std::string images() const;                        ///< 30 PNG files and JPEG files, of three labels
  std::string columns(std::uint32_t sequence) const; ///< 200 samples of input_ids and labels, below 256

private:
  std::filesystem::path path_;
};

} // namespace parcae
