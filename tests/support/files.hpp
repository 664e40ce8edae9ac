#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace parcae {

/// An empty folder, which goes with this object.
struct own_folder : std::filesystem::path {
  own_folder() {
    auto pattern = (std::filesystem::temp_directory_path() / "parcae-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw std::runtime_error("no folder for a test");
    assign(pattern);
  }
  ~own_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(*this, ignored);
  }
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
};

/// All that is in a file; empty if it is not there.
inline std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// With the folders above it.
inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

} // namespace parcae
