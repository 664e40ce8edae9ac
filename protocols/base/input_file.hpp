#pragma once

// How files from elsewhere are opened: what is no file (a FIFO without a writer, a device) must not hold anybody up.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

/// what(): the path and the reason, such as "PATH is no regular file".
struct input_error : std::runtime_error {
  input_error(const std::filesystem::path& path, const std::string& why) :
      std::runtime_error(path.string() + " " + why), reason(why) {}

  std::string reason; ///< for messages that name the file in their own way
};

/// A regular file, open for reading. Opening never waits. All methods throw input_error. Not thread-safe.
class input_file {
public:
  /// `follow`: also if the path is a symbolic link.
  explicit input_file(std::filesystem::path path, bool follow = true);
  ~input_file();
  input_file(const input_file&) = delete;
  input_file& operator=(const input_file&) = delete;

  std::uint64_t size() const { return size_; } ///< when it was opened

  /// Reads until `to` is full or the file ends; returns how many bytes.
  std::size_t read(std::span<std::byte> to);

  void seek(std::uint64_t place); ///< from the beginning

  /// As read(), at a place, wherever the file stands. Any thread.
  std::size_t read_at(std::uint64_t place, std::span<std::byte> to) const;

  /// These bytes will be wanted: the system may begin to read them. Any thread.
  void expect(std::uint64_t place, std::uint64_t bytes) const;

private:
  [[noreturn]] void fail(const char* what, int error) const;
  template <class Read>
  std::size_t fill(std::span<std::byte> to, Read read_some) const;

  std::filesystem::path path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole file. Throws input_error, also if it has more bytes than `most`. Memory grows with what is there.
std::string contents_of(const std::filesystem::path& path, std::uint64_t most);

/// Throws input_error if there are folders and the path, links resolved, is below none. It need not be there.
void require_within(const std::filesystem::path& path, const std::vector<std::filesystem::path>& folders);

} // namespace parcae
