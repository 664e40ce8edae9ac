#include "runtime/node/device_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

namespace parcae {

namespace {

constexpr std::chrono::seconds patience{2};
constexpr std::chrono::milliseconds pause{20};

/// Of any user: who comes first makes it, and lets all others open it. Below 0: it cannot be had.
int open_file(const std::filesystem::path& x) {
  constexpr int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
  const int made = ::open(x.c_str(), flags | O_CREAT | O_EXCL, 0644);
  if (made < 0)
    return errno == EEXIST ? ::open(x.c_str(), flags) : made; // with O_CREAT the kernel may refuse another user's
  ::fchmod(made, 0644);
  return made;
}

} // namespace

device_lock::device_lock(const std::string& unique, const std::string& place, kind how,
                         const std::filesystem::path& folder) {
  if (unique.empty())
    return;
  file_ = open_file(folder / ("parcae-" + unique + ".lock"));
  const auto end = std::chrono::steady_clock::now() + patience;
  while (file_ >= 0 && ::flock(file_, (how == kind::shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= end) {
      ::close(file_);
      throw std::runtime_error("another node computes on " + place + " (" + unique +
                               ") already: give each its share with --slot-memory, or another GPU with --device");
    }
    std::this_thread::sleep_for(pause);
  }
}

device_lock::~device_lock() {
  if (file_ >= 0)
    ::close(file_);
}

device_lock::device_lock(device_lock&& x) noexcept : file_(std::exchange(x.file_, -1)) {}

} // namespace parcae
