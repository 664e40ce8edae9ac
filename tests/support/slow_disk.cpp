// Preloaded into a program: what it writes to files below the folder $PARCAE_SLOW_DISK, and reads at a place of them,
// takes long while there is a file of that name with ".slow" after it. What a busy network disk does to whoever waits
// for it. $PARCAE_SLOW_READS: what a read takes instead, in microseconds, of what the kernel has in memory, and of what
// it has not: "6000 12000"; then only what reads less than a page waits, and nothing is read ahead.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr useconds_t write_takes = 20'000, sync_takes = 500'000; // microseconds
constexpr size_t a_page = 4096;

/// Whether the kernel has all of that part of a file in memory.
bool is_warm(int file, size_t size, off_t at) {
  const auto from = static_cast<size_t>(at) / a_page * a_page;
  const auto length = static_cast<size_t>(at) + size - from;
  auto* const there = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file, static_cast<off_t>(from));
  if (there == MAP_FAILED)
    return false;
  std::vector<unsigned char> pages((length + a_page - 1) / a_page);
  const bool known = ::mincore(there, length, pages.data()) == 0;
  ::munmap(there, length);
  return known && std::ranges::all_of(pages, [](auto x) { return (x & 1) != 0; });
}

struct read_times {
  unsigned warm = 20'000, cold = 20'000; ///< microseconds

  static const read_times& get() {
    static const auto result = [] {
      read_times x;
      if (const auto* text = std::getenv("PARCAE_SLOW_READS"))
        std::sscanf(text, "%u %u", &x.warm, &x.cold);
      return x;
    }();
    return result;
  }

  bool differ() const { return warm != cold; }

  unsigned of(int file, size_t size, off_t at) const {
    if (!differ())
      return warm;
    return size > a_page ? 0 : is_warm(file, size, at) ? warm : cold;
  }
};

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

int posix_fadvise(int file, off_t at, off_t size, int advice) {
  static auto* const next = behind<int(int, off_t, off_t, int)>("posix_fadvise");
  if (advice == POSIX_FADV_WILLNEED && read_times::get().differ() && is_slow(file))
    return 0;
  return next(file, at, size, advice);
}

ssize_t pread(int file, void* to, size_t size, off_t at) {
  static auto* const next = behind<ssize_t(int, void*, size_t, off_t)>("pread");
  if (is_slow(file))
    ::usleep(read_times::get().of(file, size, at));
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
