#include "protocols/base/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_read = std::size_t{1} << 30; ///< Linux reads at most 2 GiB at once

} // namespace

input_file::input_file(std::filesystem::path path, bool follow) :
    path_(std::move(path)),
    file_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW))) {
  if (file_ < 0)
    fail("opened", errno);
  struct stat status {};
  const auto known = fstat(file_, &status) == 0;
  if (known && S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    return;
  }
  const auto error = errno;
  close(file_);
  if (!known)
    fail("opened", error);
  throw input_error(path_, S_ISDIR(status.st_mode) ? "is a folder" : "is no regular file");
}

input_file::~input_file() {
  close(file_);
}

std::size_t input_file::read(std::span<std::byte> to) {
  return fill(to, [&](std::span<std::byte> rest) { return ::read(file_, rest.data(), rest.size()); });
}

std::size_t input_file::read_at(std::uint64_t place, std::span<std::byte> to) const {
  return fill(to, [&](std::span<std::byte> rest) {
    const auto at = place + static_cast<std::uint64_t>(rest.data() - to.data());
    return pread(file_, rest.data(), rest.size(), static_cast<off_t>(at));
  });
}

template <class Read>
std::size_t input_file::fill(std::span<std::byte> to, Read read_some) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const auto n = read_some(to.subspan(done, std::min(to.size() - done, max_read)));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      fail("read", errno);
    if (n == 0)
      break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void input_file::expect(std::uint64_t place, std::uint64_t bytes) const {
  posix_fadvise(file_, static_cast<off_t>(place), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void input_file::seek(std::uint64_t place) {
  if (lseek(file_, static_cast<off_t>(place), SEEK_SET) < 0)
    fail("read", errno);
}

void input_file::fail(const char* what, int error) const {
  throw input_error(path_, std::string("cannot be ") + what + ": " + std::system_category().message(error));
}

std::string contents_of(const std::filesystem::path& path, std::uint64_t most) {
  input_file file(path);
  const auto too_large = [&] { return input_error(path, "is larger than " + std::to_string(most) + " bytes"); };
  if (file.size() > most)
    throw too_large();
  std::string result;
  // One byte beyond the expected size, so that the read that finds the end needs no further room.
  for (std::size_t room = static_cast<std::size_t>(file.size()) + 1;; room = 1 << 16) {
    const auto begin = result.size();
    result.resize(begin + room);
    const auto n = file.read(std::as_writable_bytes(std::span(result).subspan(begin)));
    result.resize(begin + n);
    if (result.size() > most)
      throw too_large();
    if (n < room)
      return result;
  }
}

void require_within(const std::filesystem::path& path, const std::vector<std::filesystem::path>& folders) {
  if (folders.empty())
    return;
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(path, error); // what is not there may be allowed, too
  if (error)
    throw input_error(path, error.message());
  std::string allowed;
  for (const auto& folder : folders) {
    const auto below = std::filesystem::weakly_canonical(folder, error);
    if (!error && std::ranges::mismatch(below, real).in1 == below.end())
      return;
    allowed += (allowed.empty() ? "" : ", ") + folder.string();
  }
  throw input_error(path, "is not below what this node lets jobs use: --data " + allowed);
}

} // namespace parcae
