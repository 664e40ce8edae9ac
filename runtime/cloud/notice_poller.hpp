#pragma once

// Notices of the cloud: asks the machine's metadata server, on a thread of its own, until it is destroyed.

#include "runtime/cloud/cloud.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace parcae {

struct cloud_options {
  cloud of = cloud::auto_;
  std::string server = "169.254.169.254:80";       ///< ADDRESS:PORT of the metadata server; numeric, IPv6 in brackets
  std::filesystem::path dmi = "/sys/class/dmi/id"; ///< what the firmware says of the machine
};

/// One line; empty: none.
std::string problem_of(const cloud_options& x);

/// Both are called on the poller's thread and must be quick.
struct cloud_listener {
  /// The machine will be taken after `left`, at most two minutes, and why, in one line. Again, if it changes.
  std::function<void(std::chrono::milliseconds left, std::string reason)> notice;
  /// It may be taken some time, and why, in one line; empty: no more.
  std::function<void(std::string reason)> risk;
};

struct poll_pace;

class notice_poller {
public:
  /// Returns at once. With `auto_`, the firmware says which cloud to ask, none of those known is none, and where
  /// the firmware says nothing the metadata server is asked who it is, once, for some seconds at most. Throws
  /// std::invalid_argument with problem_of.
  notice_poller(cloud_options options, cloud_listener listener);

  /// At another pace, for tests.
  notice_poller(cloud_options options, cloud_listener listener, const poll_pace& pace);

  /// Ends within milliseconds, in the midst of a question too.
  ~notice_poller();

  /// Nothing on this machine needs the time of the notice any more: it may be taken. The cloud is told, if it asks for
  /// that (Azure). Returns within the limit, whatever comes of it. From any thread.
  void acknowledge(std::chrono::milliseconds limit);

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
