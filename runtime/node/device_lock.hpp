#pragma once

// Two nodes that compute on one GPU, each of which takes all of its memory for its own, fail at some step of some job:
// the second is refused at its start instead.

#include <filesystem>
#include <string>

namespace parcae {

/// A GPU is taken by this process until it ends, however it does: a lock on a file that is named after it.
class device_lock {
public:
  enum class kind { alone, shared };

  /// `unique`: the device's (device_facts). Blocks for at most 2 s, as who was killed a moment ago may still have it.
  /// Throws std::runtime_error with one line if another process has it, unless all of them share it. Where the file
  /// cannot be made the device counts as taken by nobody.
  device_lock(const std::string& unique, const std::string& place, kind how,
              const std::filesystem::path& folder = "/tmp");
  ~device_lock();
  device_lock(device_lock&& x) noexcept;
  device_lock& operator=(device_lock&&) = delete;

private:
  int file_ = -1; ///< none: nothing is held
};

} // namespace parcae
