#pragma once

// The files of a job's data, of any size. For the sources of this room.

#include "gpu/data/dataset.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/base/locks.hpp"

#include <cstddef>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace parcae {

/// As data_error, "data PATH: reason".
[[noreturn]] void fail_data(const std::filesystem::path& path, const std::string& reason);
[[noreturn]] void fail_sample(const std::filesystem::path& path, const std::string& reason);

/// Up to data_held bytes in all are held in memory. What is more is read with pread when it is wanted: a file that
/// shrinks, or a disk that fails, is then a data_error in the thread that reads. A mapping would end the process by a
/// signal, and count what was read as the process's memory. Few files are open at once. Any thread may read.
class data_files {
public:
  struct file {
    std::string name; ///< relative to the folder; empty: the data is this one file
    std::uint64_t size = 0;
  };

  /// The file, or all regular ones below the folder whose relative path is wanted, sorted by it. Throws data_error.
  explicit data_files(std::filesystem::path root, const std::function<bool(std::string_view)>& wanted = {});

  const std::vector<file>& all() const { return files_; }
  std::uint64_t bytes() const { return bytes_; } ///< of all files
  bool held() const { return held_.size() == files_.size(); }
  std::filesystem::path path_of(std::size_t file) const;

  const std::string& digest() const { return digest_; }
  std::string whole_digest(const std::atomic<bool>& stop) const;

  /// Fills `to` with what a file has from a place on. Throws data_error, also if that is not there any more.
  void read(std::size_t file, std::uint64_t place, std::span<std::byte> to) const;

  void expect(std::size_t file, std::uint64_t place, std::uint64_t bytes) const;

  /// Some read failed.
  bool spoiled() const { return spoiled_; }

private:
  void hold();
  void add_samples(sha256& to) const;
  std::string digest_of_all(const std::atomic<bool>& stop) const;
  std::shared_ptr<const input_file> opened(std::size_t file) const;

  using open_file = std::pair<std::size_t, std::shared_ptr<const input_file>>;

  std::filesystem::path root_;
  std::vector<file> files_;
  std::uint64_t bytes_ = 0;
  std::vector<std::string> held_; ///< by file; empty: they are not
  std::string digest_;
  mutable std::atomic<bool> spoiled_ = false;
  mutable parcae::mutex mutex_;
  mutable std::list<open_file> open_ GUARDED_BY(mutex_); ///< last used first
  mutable std::unordered_map<std::size_t, std::list<open_file>::iterator> places_ GUARDED_BY(mutex_);
};

} // namespace parcae
