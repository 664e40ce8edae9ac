#pragma once

// What the sources of the REGISTRY use of each other.

#include "actors/manager/job_obstacle.hpp"
#include "actors/manager/registry.hpp"

#include <chrono>

namespace parcae {

using registry_pointer = registry_actor::stateful_pointer<registry_state>;

/// For the running job's picture.
inline constexpr std::chrono::seconds view_limit{2};

/// What the members that are there to stay offer to a job.
fleet_offer offer_of(const registry_state& s);

/// This job as the queue has it; and those that the queue has forgotten, so that they go.
journal_entries entries_of(registry_state& s, job_id job);

/// Puts that into the journal, if there is one.
void keep(registry_pointer self, job_id job);

/// If none runs and one can.
void start_next_job(registry_pointer self);

/// A member says, or the manager does, when it ends at the latest.
void leave(registry_pointer self, const leaving_notice& x);

/// Workers of pools, and the job that runs, or the first that waits.
caf::result<market_facts> market_now(registry_pointer self);

/// One of a pool lives no more.
void count_gone(registry_state& s, const instance_record& x, time_point now);

/// Whether a job may have it: it is of no place, or of the one where is trained.
bool may_train(const registry_state& s, const hello& x);

/// Those that may from now on are offered to the job.
void train(registry_pointer self, const train_with& x);

/// Its slots, to the running job.
void offer_slots(registry_pointer self, const instance_table::key& who);

/// News of a worker for the forecasts of this job and of those to come.
void spread_news(registry_pointer self, const hello& x, bool joined, bool announced);

/// Notice, and then the end, of workers.
void give_notice(registry_pointer self, const give_back& x);

/// What a client asks; what cannot be decoded is refused.
caf::result<client_reply> serve(registry_pointer self, const requester& who, const client_request& x);

} // namespace parcae
