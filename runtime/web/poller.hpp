#pragma once

// Asks the manager once a second, on threads of its own, for as long as it lives: one that is away is dialled again and
// again, for ever.

#include "runtime/process/address.hpp"
#include "runtime/web/facts.hpp"

#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace parcae {

class poller {
public:
  /// Called on other threads, one at a time; must be quick.
  struct listener {
    std::function<void(std::shared_ptr<const status_reply>)> heard;
    std::function<void(std::string)> away;        ///< why no answer comes
    std::function<void(std::string)> certificate; ///< what is to be done about the one shown; empty: nothing
  };

  poller(manager_access manager, listener told);

private:
  void run(const std::stop_token& stop);
  void follow(const std::stop_token& stop);

  const manager_access manager_;
  const listener told_;
  std::jthread thread_; ///< ended first
};

} // namespace parcae
