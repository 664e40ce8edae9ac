#pragma once

// Data of several kinds in a folder of its own, which goes with it.

#include "tests/support/files.hpp"

#include <cstdint>
#include <string>

namespace parcae {

class data_folder {
public:
  const std::filesystem::path& path() const { return path_; }

  // Each makes what it returns the path of.
  std::string large_tokens() const;                  ///< of four bytes, below 256; more than is held in memory
  std::string few_tokens() const;                    ///< likewise, 4000 of them
  std::string images() const;                        ///< 30 PNG files and JPEG files, of three labels
  std::string columns(std::uint32_t sequence) const; ///< 200 samples of input_ids and labels, below 256

private:
  own_folder path_;
};

} // namespace parcae
