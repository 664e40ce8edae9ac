#pragma once

// The last lines of a process's log and what ended it, in memory that outlives the process.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Memory shared with every process that has its descriptor (memfd_create(2)), also after execve(2).
class black_box {
public:
  static constexpr std::size_t max_lines = 24;
  static constexpr std::size_t line_bytes = 256; ///< what is longer is cut off

  /// An empty one. Throws std::system_error.
  black_box();

  /// That of another process, which may have ended. Takes the descriptor over. Throws std::system_error, also if it is
  /// no black box.
  explicit black_box(int descriptor);

  ~black_box();
  black_box(const black_box&) = delete;
  black_box& operator=(const black_box&) = delete;

  int descriptor() const { return descriptor_; }

  /// By one thread at a time.
  void write(std::string_view line) noexcept;

  /// The process ends because of this. The first call counts. Any thread; also in a signal handler.
  void note_end(std::string_view why) noexcept;

  /// Empty: it lives, or ended as it should.
  std::string end() const;
  /// That it worked for by then, as its log context said; 0: none.
  std::uint64_t job() const;

  /// Oldest first. A line that was being written may be incomplete.
  std::vector<std::string> lines() const;

private:
  struct content;

  void map();

  int descriptor_;
  content* content_ = nullptr; ///< mapped
};

/// From now on the box notes the signal by which this process crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), and
/// an exception that nobody catches. The process still ends by that signal. Not noted: SIGKILL, and a stack that
/// overflows on a thread that did not call use_crash_stack().
void note_crashes(std::shared_ptr<black_box> box);

} // namespace parcae
