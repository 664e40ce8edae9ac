#include "protocols/base/durable_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

constexpr int max_links = 40;                             ///< as many as Linux follows
constexpr std::size_t max_written = std::size_t{1} << 30; ///< Linux writes at most 2 GiB at once

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

/// By errno, which is kept.
bool sync_folder(const std::filesystem::path& folder) {
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool on_disk = opened >= 0 && fsync(opened) == 0;
  const auto error = errno;
  if (opened >= 0)
    close(opened);
  errno = error;
  return on_disk;
}

} // namespace

void make_folders(const std::filesystem::path& folder, file_access access) {
  if (std::filesystem::is_directory(folder))
    return;
  if (folder.has_relative_path())
    make_folders(folder_of(folder), access);
  // Not made and then narrowed: nobody looks in between.
  if (mkdir(folder.c_str(), access == file_access::private_ ? 0700 : 0777) != 0 &&
      (errno != EEXIST || !std::filesystem::is_directory(folder)))
    throw std::system_error(errno, std::system_category(), "cannot make the folder " + folder.string());
}

durable_file::durable_file(std::filesystem::path path, file_access access) : path_(std::move(path)) {
  for (int links = 0; std::filesystem::is_symlink(path_); ++links) {
    if (links == max_links)
      throw std::system_error(ELOOP, std::system_category(), "cannot write " + path_.string());
    path_ = folder_of(path_) / std::filesystem::read_symlink(path_); // which may be absolute
  }
  if (std::filesystem::exists(path_) && !std::filesystem::is_regular_file(path_))
    throw std::system_error(EINVAL, std::system_category(), "cannot write " + path_.string() + ": no regular file");
  for (auto folder = folder_of(path_); !std::filesystem::exists(folder); folder = folder_of(folder))
    made_in_.push_back(folder_of(folder));
  make_folders(folder_of(path_), access);
  static std::atomic<std::uint64_t> files = 0;
  do { // what a process of that number left may be there
    partial_ = path_;
    partial_ += ".partial-" + std::to_string(getpid()) + "-" + std::to_string(++files);
    file_ =
        open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, access == file_access::private_ ? 0600 : 0666);
  } while (file_ < 0 && errno == EEXIST);
  if (file_ < 0)
    fail();
}

durable_file::~durable_file() {
  if (file_ < 0)
    return;
  close(file_);
  unlink(partial_.c_str());
}

void durable_file::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(file_, bytes.data(), std::min(bytes.size(), max_written));
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      fail();
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void durable_file::put_on_disk() {
  if (fsync(file_) != 0)
    fail();
  if (close(std::exchange(file_, -1)) != 0)
    give_up();
}

void durable_file::give_up() const {
  const auto error = errno;
  unlink(partial_.c_str());
  errno = error;
  fail();
}

void durable_file::publish() {
  put_on_disk();
  if (rename(partial_.c_str(), path_.c_str()) != 0)
    give_up();
  sync_folders();
}

bool durable_file::publish_if_absent() {
  put_on_disk();
  const bool taken = link(partial_.c_str(), path_.c_str()) != 0;
  if (taken && errno != EEXIST)
    give_up();
  unlink(partial_.c_str());
  if (!taken)
    sync_folders();
  return !taken;
}

void durable_file::sync_folders() const {
  if (!sync_folder(folder_of(path_)))
    fail();
  for (const auto& folder : made_in_)
    if (!sync_folder(folder))
      fail();
}

void durable_file::fail() const {
  throw std::system_error(errno, std::system_category(), "cannot write " + path_.string());
}

} // namespace parcae
