#pragma once

// What `submit --check` finds out elsewhere: one worker is asked for what the job reads, one keeper for where it
// writes, the gateway in use for its tokenizer, the broker whether its budget can hold.

#include "actors/manager/registry_parts.hpp"
#include "protocols/client/client.hpp"

namespace parcae {

/// What a job reads and writes outside of the cluster.
place_question places_of(const job_specification& job);

/// The file that a gateway reads for it; empty: none.
std::string tokenizer_of(const job_specification& job);

/// `so_far`: what the registry found by itself; the answer has the others' words, too, at the latest after place_limit.
caf::result<client_reply> answer_with_words(registry_pointer self, const job_specification& job, checked_reply so_far);

} // namespace parcae
