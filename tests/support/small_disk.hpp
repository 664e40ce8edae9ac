#pragma once

// A disk that can be full.

#include <cstddef>
#include <filesystem>
#include <string>

namespace parcae {

/// A file system of its own in memory, at a folder that it makes; unmounted with it. Needs root.
class small_disk {
public:
  explicit small_disk(std::filesystem::path folder, std::size_t bytes = std::size_t{256} << 20);
  ~small_disk();
  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;

  /// Why there is none; empty: there is.
  const std::string& problem() const { return problem_; }

  void fill();
  void make_room();

private:
  std::filesystem::path folder_;
  std::string problem_;
};

} // namespace parcae
