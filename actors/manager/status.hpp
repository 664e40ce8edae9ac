#pragma once

// What `status` shows, from what the manager's actors hold. Pure.

#include "actors/manager/instance_table.hpp"
#include "actors/manager/job_queue.hpp"
#include "actors/manager/local_messages.hpp"
#include "protocols/client/client.hpp"

namespace parcae {

/// information, warning, error
std::string name_of(severity x);

instance_status status_of(const instance_record& x, time_point now);

/// `picture` may be empty: the job never ran.
job_status status_of(job_id id, const job_entry& x, const job_picture& picture, const status_request& wanted);

/// Of a job that ended just before its manager, which could not write down more than its durable state. `last`: what it
/// kept before.
job_status status_of(job_id id, const job_entry& x, const durable_state& durable, const job_status& last);

/// Of this machine, since 1970.
std::int64_t wall_clock_us();

/// A status of one job that a manager before kept, whose clock may have been another machine's: with the times of this
/// one's. `now`, and when that is since 1970.
job_status on_this_clock(const status_reply& kept, time_point now, std::int64_t wall_us);

/// What the next manager's conductor is told of how the job went.
known_job known_from(const durable_state& durable, const version& reached, const job_status& last);

/// What is wanted of a status that has all.
job_status part_of(job_status x, const status_request& wanted);

/// Why workers are without a place in a job that runs. First those that can have none; of the others nothing while it
/// is changing.
std::string idle_reason(const job_specification& job, const job_status& x, const std::vector<unused_slot>& unused,
                        const std::vector<instance_status>& instances);

/// Why there is no checkpoint of a job that runs, though one was due long ago, or none will come; empty: there is one,
/// or it is not time yet.
std::string why_not_on_disk(const job_specification& job, const job_view& x, time_point now);

} // namespace parcae
