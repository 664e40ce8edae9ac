#pragma once

// A connection to a manager for commands and the demo. Blocking, for one thread; torch-free.

#include "protocols/client/client.hpp"
#include "protocols/values/loss_record.hpp"
#include "runtime/process/address.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>

namespace parcae {

constexpr std::chrono::milliseconds ask_interval{200}; ///< of a command that waits for news
/// A manager that was away for longer does not come back by itself: a machine starts anew in less.
constexpr std::chrono::minutes absence_limit{5};

/// The manager cannot be reached or refused a request, or the bundle cannot be used; what() is one line for the user.
class client_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The manager answered that it will not.
class refused_request : public client_error {
public:
  refused_request(const std::string& line, std::string code) : client_error(line), code(std::move(code)) {}
  std::string code; ///< as in error_reply
};

class manager_client {
public:
  /// Connects; throws client_error if no manager answers within the limit.
  explicit manager_client(const manager_access& manager, std::chrono::milliseconds limit = std::chrono::seconds(5));
  ~manager_client();

  /// What is asked from now on may take so long.
  void wait_for_answers(std::chrono::milliseconds limit);

  /// What is to be done about the certificate shown, as it ends soon; else nothing.
  std::string certificate_problem() const;

  /// All throw client_error, also for error replies. Where the connection has ended, or ends while something is asked
  /// that changes nothing, they connect anew, and ask again, once.
  std::uint64_t submit(const job_specification& job, std::int32_t priority = 0);
  checked_reply check(const job_specification& job, std::int32_t priority = 0);
  status_reply status(const status_request& wanted = {}); ///< all pages
  std::vector<std::string> preempt(const preempt_request& x);
  void cancel(std::uint64_t job);
  void checkpoint(std::uint64_t job); ///< asks for one; the status tells when it is there
  void report(const report_request& x);
  trace_reply trace(const trace_request& x);
  /// What is known of a job's steps from this one on: a block of them.
  loss_block losses(std::uint64_t job, std::uint64_t from);
  struct thinned_losses {
    std::uint64_t every = 1; ///< steps from one in the block to the next
    loss_block steps;
    std::vector<loss_point> validation_losses; ///< of what was evaluated, whichever steps that were
  };
  /// At most `points` of both, evenly over all, the newest among them.
  thinned_losses curve(std::uint64_t job, std::uint64_t points);

  /// What follow() tells. All are called on another thread, one at a time, and must be quick.
  struct listener {
    std::function<status_request(status_reply)> heard; ///< each answer; says what to ask next
    /// One line, once until the next answer: the manager is gone (within milliseconds of its process's end), or does
    /// not answer within the limit. It is dialled again, and so are the others named.
    std::function<void(std::string)> away;
    std::function<void(std::string)> lost; ///< one line, once and last: it refused, or was away for too long
  };

  /// Asks for the status now, and again each `interval` after an answer, until the client goes. At most one at a time.
  void follow(status_request first, std::chrono::milliseconds interval, listener told,
              std::chrono::milliseconds patience = absence_limit);

private:
  reply ask(const request& x);
  void find_manager();
  void dial();

  struct implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
