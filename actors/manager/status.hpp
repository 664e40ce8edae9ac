#pragma once

// What `status` shows, from what the manager's actors hold. Pure.

#include "actors/manager/instance_table.hpp"
#include "actors/manager/job_queue.hpp"
#include "actors/manager/local_messages.hpp"
#include "protocols/client/client.hpp"

namespace parcae {

/// information, warning, error
const char* name_of(severity x);

instance_status status_of(const instance_record& x, time_point now);

/// `picture` may be empty: the job never ran.
job_status status_of(job_id id, const job_entry& x, const job_picture& picture, const status_request& wanted);

/// Of a job that ended just before its manager, which could not write down more than its memory.
job_status status_of(job_id id, const job_entry& x, const job_memory& memory);

/// What is wanted of a status that has all.
job_status part_of(job_status x, const status_request& wanted);

/// Why workers are without a place in a job that runs; empty: none is, or it is changing.
std::string idle_reason(const job_specification& job, const job_status& x,
                        const std::vector<instance_status>& instances);

} // namespace parcae
