#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace parcae {

/// What each process wrote to its log in its present life: a name's lives share a file. Not thread-safe.
class life_log {
public:
  explicit life_log(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// A life is about to begin, or has just begun.
  void begin(const std::string& name) {
    std::error_code none_yet;
    const auto size = std::filesystem::file_size(file_of(name), none_yet);
    from_[name] = none_yet ? 0 : size;
  }

  std::string text(const std::string& name) const {
    std::ifstream file(file_of(name));
    file.seekg(static_cast<std::streamoff>(from_.at(name)));
    return {std::istreambuf_iterator<char>(file), {}};
  }

private:
  std::filesystem::path file_of(const std::string& name) const { return folder_ / (name + ".log"); }

  const std::filesystem::path folder_;
  std::map<std::string, std::uintmax_t> from_; ///< by name: where in the file
};

} // namespace parcae
