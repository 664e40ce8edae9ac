#pragma once

// An S3 server of a test's own, which it may kill and start again.

#include "runtime/child/process.hpp"

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace parcae {

/// SeaweedFS, by tests/stores/object_server: started with the object, gone with it, and with all that it stored. Any
/// thread, one at a time. Each call is done when it returns; std::runtime_error when the script fails.
class own_object_server {
public:
  /// `folder`: where its address, for object_server_test::use, and its log are.
  explicit own_object_server(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    tell("start");
  }
  own_object_server(const own_object_server&) = delete;
  own_object_server& operator=(const own_object_server&) = delete;
  ~own_object_server() {
    try {
      tell("stop");
    } catch (const std::runtime_error&) {
      // Its own limit of an hour ends it.
    }
  }

  std::string folder() const { return folder_.string(); }

  /// By SIGKILL. What it stored stays.
  void kill() { tell("kill"); }

  /// At the same address, with what it stored.
  void restart() { tell("restart"); }

private:
  void tell(const char* what) {
    child_process script(
        {{PARCAE_OBJECT_SERVER_SCRIPT, what, folder()}, folder_ / "script.log", folder_ / "script.log"});
    if (script.wait(std::chrono::minutes(4)) != 0)
      throw std::runtime_error("object_server " + std::string(what) + " failed; see " + folder());
  }

  std::filesystem::path folder_;
};

} // namespace parcae
