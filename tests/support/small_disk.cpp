#include "tests/support/small_disk.hpp"

#include <sys/mount.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace parcae {

namespace {

constexpr const char* filler = "filler";

} // namespace

small_disk::small_disk(std::filesystem::path folder, std::size_t bytes) : folder_(std::move(folder)) {
  std::filesystem::create_directories(folder_);
  if (mount("tmpfs", folder_.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) != 0)
    problem_ = std::string("no file system can be mounted: ") + std::strerror(errno);
}

small_disk::~small_disk() {
  if (problem_.empty())
    umount2(folder_.c_str(), MNT_DETACH);
}

void small_disk::fill() {
  std::ofstream file(folder_ / filler, std::ios::binary | std::ios::app);
  static constexpr std::array<char, 1 << 16> zeros{};
  while (file.write(zeros.data(), zeros.size()).flush())
    ;
}

void small_disk::make_room() {
  std::filesystem::remove(folder_ / filler);
}

} // namespace parcae
