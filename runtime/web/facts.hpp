#pragma once

// What the manager told so far, put together from answers that have only what is new. Pure.

#include "protocols/client/client.hpp"

namespace parcae {

class cluster_facts {
public:
  /// Of each list of what happened, as many as the manager keeps of changes.
  static constexpr std::size_t kept = 1000;

  /// Takes the answer to next(). Of another manager, or another job, only what came is known, and of one that came back
  /// what came of the instances, and the job as it was; all of it is asked for next.
  void take(status_reply x);

  /// What to ask next: what may have changed or come since.
  status_request next() const;

  const status_reply& status() const { return status_; }

private:
  status_reply status_;
  std::uint64_t known_ = 0; ///< the job whose lists are whole; 0: none
};

} // namespace parcae
