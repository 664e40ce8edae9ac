#pragma once

// Child processes on this machine, for the demo and for tests. Always cleaned up: each has a process group of its own,
// which is killed when the object goes, and dies with its parent.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

struct launch_options {
  std::vector<std::string> arguments;     ///< the program first
  std::filesystem::path standard_output;  ///< appended to
  std::filesystem::path standard_error;   ///< appended to
  std::filesystem::path standard_input{}; ///< empty: this process's
  /// Of ours it has its standard streams only: no other files, no signals that are blocked or ignored. For programs
  /// that are not ours, and may outlive us.
  bool is_foreign = false;
};

/// One child. Not thread-safe; must be used by the thread that launched it (the parent-death signal is per thread).
class child_process {
public:
  /// Throws std::runtime_error if the program cannot be started.
  explicit child_process(const launch_options& options);
  child_process(child_process&& other) noexcept;
  child_process& operator=(child_process&& other) noexcept;
  ~child_process();

  pid_t pid() const { return pid_; }

  /// To the process; does nothing once it has ended.
  void signal(int number);

  /// The exit status (128 + signal if a signal ended it) once the process has ended.
  std::optional<int> poll();

  /// The same, waiting up to the limit.
  std::optional<int> wait(std::chrono::milliseconds limit);

private:
  void end();

  pid_t pid_ = -1; ///< -1: moved from
  std::optional<int> status_;
};

/// A program that lies beside the one that is running.
std::filesystem::path sibling_program(const std::string& name);

/// A new folder for temporary files, removed with its content when the object goes unless keep() was called.
class scratch_folder {
public:
  explicit scratch_folder(const std::string& prefix);
  ~scratch_folder();
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }

private:
  std::filesystem::path path_;
  bool kept_ = false;
};

} // namespace parcae
