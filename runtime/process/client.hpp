#pragma once

// A connection to a manager for commands and the demo. Blocking, for one thread; torch-free.

#include "protocols/client/client.hpp"
#include "runtime/process/address.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>

namespace parcae {

constexpr std::chrono::milliseconds ask_interval{200}; ///< of a command that waits for news

/// The manager cannot be reached or refused a request, or the bundle cannot be used; what() is one line for the user.
class client_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

class manager_client {
public:
  /// Connects; throws client_error if no manager answers within the limit.
  explicit manager_client(const manager_access& manager, std::chrono::milliseconds limit = std::chrono::seconds(5));
  ~manager_client();

  /// All throw client_error, also for error replies.
  std::uint64_t submit(const job_specification& job, std::int32_t priority = 0);
  checked_reply check(const job_specification& job, std::int32_t priority = 0);
  status_reply status(const status_request& wanted = {});
  std::vector<std::string> preempt(const preempt_request& x);
  void cancel(std::uint64_t job);
  void checkpoint(std::uint64_t job); ///< asks for one; the status tells when it is there
  void report(const report_request& x);

  /// Asks for the status now, and again each `interval` after an answer, until the client goes. `heard` gets each
  /// answer and says what to ask next; `lost`, once and last, gets one line when the manager is gone (within
  /// milliseconds of its process's end), refuses, or does not answer within the limit. Both are called on another
  /// thread, one at a time, and must be quick. At most one at a time.
  void follow(status_request first, std::chrono::milliseconds interval,
              std::function<status_request(status_reply)> heard, std::function<void(std::string)> lost);

private:
  reply ask(const request& x);
  void dial(const address& manager);

  struct implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
