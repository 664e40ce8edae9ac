#pragma once

// `parcae status` for people. Pure.

#include "protocols/client/client.hpp"

#include <string>

namespace parcae {

/// Of migration, for people.
std::string kind_of(const change_status& x);

/// Several lines per job, for one that was asked for. Without `all` no instances that are lost.
std::string text_of(const status_reply& x, bool all = true);

/// One line per job and instance. Without `all` no jobs that have ended, unless that is the last thing that happened,
/// and no instances that are lost.
std::string overview_of(const status_reply& x, bool all);

/// "2.2500", "not finite", or "-" where there is none.
std::string loss_of(const job_status& x);

/// The losses as CSV with a header: step,loss,validation_loss; one of the two may be empty.
std::string curve_of(const job_status& x);

} // namespace parcae
