#pragma once

#include "runtime/cli/renting.hpp"
#include "runtime/journal/etcd_journal.hpp"
#include "runtime/process/address.hpp"
#include "runtime/process/logging.hpp"

#include <filesystem>
#include <optional>

namespace parcae {

/// Where what a manager must not forget is kept: in the folder `state`, or in the `store`, where of several managers
/// one leads.
struct journal_place {
  std::filesystem::path state;
  std::optional<etcd_place> store;
  bool standby = false; ///< waits until no other one leads
};

/// Runs the manager until SIGTERM or SIGINT; returns the exit status. The running job is then stopped at a step and
/// checkpointed, which takes at most 30 s, and the log says how to go on with it; a second signal ends at once. Prints
/// "listening on HOST:PORT" on stdout once it does. SIGHUP reads the certificates again. When it is killed,
/// and started again with the same journal, its jobs go on where they are. With a store, a signal ends it at once,
/// without disturbing the job: another one takes over. Throws std::runtime_error with one line if it cannot listen, or
/// cannot go on, or has no usable market file or hook.
int run_manager(const address& listen, const std::filesystem::path& bundle, const journal_place& kept,
                const renting_options& rents, log_format log = log_format::text);

} // namespace parcae
