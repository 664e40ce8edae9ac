#pragma once

// `parcae status` for people. Pure.

#include "protocols/client/client.hpp"

#include <string>

namespace parcae {

/// Of migration, for people.
std::string kind_of(const change_status& x);

/// Several lines per job, for one that was asked for. Without `all` no instances that are lost.
std::string to_string(const status_reply& x, bool all = true);

/// One line per job and instance. Without `all` no jobs that have ended, unless that is the last thing that happened,
/// and no instances that are lost.
std::string overview_of(const status_reply& x, bool all);

/// "waits 12.0 ms a step for data: a/0: /data/tokens.bin"; empty if that is no hundredth of a step.
std::string data_wait_of(const job_status& x);

/// "market: 2 of 2 here-spot; $0.43 spent; $1.20 more expected, the end in 2h, the deadline in 3h"; empty: the manager
/// rents nothing.
std::string market_text(const status_reply& x);

/// "tensors move by NCCL (NVIDIA H200)", or by TCP, and why; empty if they do so as they should.
std::string transport_of(const job_status& x);

/// What would be lost if all workers went, and what to do; empty: little.
std::string risk_of(const job_status& x);

/// " early, as …", behind "done", of a job that is so before its last step; empty: it is not.
std::string early_end_of(const job_status& x);

/// ", 2 copies of step 450", ", 1 copy of step 450: there is 1 keeper"; empty if there is one, and no more are asked
/// for.
std::string copies_of(const job_status& x);

/// "2.2500", "not finite", or "-" where there is none.
std::string loss_of(const job_status& x);

} // namespace parcae
