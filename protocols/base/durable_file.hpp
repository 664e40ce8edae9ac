#pragma once

// A file that is there whole and on disk, or not at all.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace parcae {

/// Who may read the file, and the folders that are made for it.
enum class file_access {
  by_umask, ///< as the process makes files
  private_, ///< for this process's user alone
};

/// With those above it that are missing. Throws std::system_error.
void make_folders(const std::filesystem::path& folder, file_access access);

/// Written beside its name, and renamed when it is complete and on disk. If several write the same file, also in other
/// processes, the last one published is there, whole. All methods throw std::system_error with one line that names
/// the file. Not thread-safe.
class durable_file {
public:
  /// Creates missing folders. A symbolic link stands for what it names; what is there must be a regular file.
  explicit durable_file(std::filesystem::path path, file_access access = file_access::by_umask);
  ~durable_file(); ///< what was not published is deleted
  durable_file(const durable_file&) = delete;
  durable_file& operator=(const durable_file&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// fsync, rename, fsync of the folder and of those that were missing. A crash leaves the former file or this one.
  void publish();

  /// The same, unless something has that name: then nothing is changed, and it is false.
  bool publish_if_absent();

private:
  void put_on_disk();
  void sync_folders() const;
  [[noreturn]] void fail() const;    ///< by errno
  [[noreturn]] void give_up() const; ///< what is beside the name; by errno

  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::vector<std::filesystem::path> made_in_; ///< folders in which one was made
  int file_ = -1;                              ///< -1: closed
};

} // namespace parcae
