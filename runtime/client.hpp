#pragma once

// A connection to a manager for commands and the demo. Blocking, for one thread; torch-free.

#include "protocols/client.hpp"
#include "runtime/address.hpp"

#include <chrono>
#include <memory>
#include <stdexcept>

namespace parcae {

/// The manager cannot be reached or refused a request; what() is one line for the user.
class client_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

class manager_client {
public:
  /// Connects; throws client_error if no manager answers within the limit.
  explicit manager_client(const address& manager, std::chrono::milliseconds limit = std::chrono::seconds(5));
  ~manager_client();

  /// All throw client_error, also for error replies.
  std::uint64_t submit(const job_specification& job);
  status_reply status(const status_request& wanted = {});
  std::vector<std::string> preempt(const preempt_request& x);
  void cancel(std::uint64_t job);
  void checkpoint(std::uint64_t job); ///< asks for one; the status tells when it is there

private:
  reply ask(const request& x);

  struct implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
