// Preloaded into a program: what it writes to files below the folder $PARCAE_SLOW_DISK, and reads at a place of them,
// takes long while there is a file of that name with ".slow" after it. What a busy network disk does to whoever waits
// for it.

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

constexpr useconds_t read_takes = 20'000, write_takes = 20'000, sync_takes = 500'000; // microseconds

bool is_slow(int file) {
  static const auto folder = [] {
    const auto* x = std::getenv("PARCAE_SLOW_DISK");
    return std::string(x ? x : "");
  }();
  static const std::string sign = folder + ".slow";
  if (folder.empty() || ::access(sign.c_str(), F_OK) != 0)
    return false;
  std::array<char, 32> link;
  std::array<char, 4096> name;
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", file);
  const auto size = ::readlink(link.data(), name.data(), name.size());
  return size > 0 && std::string_view(name.data(), static_cast<std::size_t>(size)).starts_with(folder + "/");
}

/// The function of that name that this one stands before.
template <class Function>
Function* behind(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int fsync(int file) {
  static auto* const next = behind<int(int)>("fsync");
  if (is_slow(file))
    ::usleep(sync_takes);
  return next(file);
}

int fdatasync(int file) {
  static auto* const next = behind<int(int)>("fdatasync");
  if (is_slow(file))
    ::usleep(sync_takes);
  return next(file);
}

ssize_t pread(int file, void* to, size_t size, off_t at) {
  static auto* const next = behind<ssize_t(int, void*, size_t, off_t)>("pread");
  if (is_slow(file))
    ::usleep(read_takes);
  return next(file, to, size, at);
}

ssize_t write(int file, const void* from, size_t size) {
  static auto* const next = behind<ssize_t(int, const void*, size_t)>("write");
  if (is_slow(file))
    ::usleep(write_takes);
  return next(file, from, size);
}

ssize_t writev(int file, const iovec* pieces, int count) {
  static auto* const next = behind<ssize_t(int, const iovec*, int)>("writev");
  if (is_slow(file))
    ::usleep(write_takes);
  return next(file, pieces, count);
}

ssize_t pwrite64(int file, const void* from, size_t size, off64_t at) {
  static auto* const next = behind<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  if (is_slow(file))
    ::usleep(write_takes);
  return next(file, from, size, at);
}

} // extern "C"
