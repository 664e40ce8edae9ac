#pragma once

// What a conductor knows of its job from the beginning.

#include "actors/conductor/job_view.hpp"
#include "protocols/base/exact.hpp"
#include "protocols/client/journal.hpp"
#include "protocols/model/model_description.hpp"
#include "protocols/values/costs.hpp"
#include "protocols/values/ids.hpp"
#include "protocols/values/job_specification.hpp"
#include "protocols/values/loss_record.hpp"
#include "protocols/values/secrets.hpp"

#include <chrono>
#include <cstdint>
#include <numeric>
#include <vector>

namespace parcae {

/// Limits of all waits (HOW_IT_WORKS.md, "Waiting").
struct conductor_options {
  using milliseconds = std::chrono::milliseconds;

  milliseconds collect{20};          ///< joins and notices are collected this long before planning
  milliseconds request_limit{5'000}; ///< answer to ABORT, DECIDE, ACTIVATE, and of the planner
  milliseconds return_limit{5'000};  ///< for ranks to be back, from the first on, after a manager was started again
  /// For the others, once each stage of a generation that trains no more has answered: they are not needed.
  milliseconds rest_limit{1'000};
  /// For the others, once who has answered the ABORT holds each stage: most ranks stop within this. One that answers
  /// later is excluded, and asked back.
  milliseconds stop_limit{2'000};
  milliseconds prepare_limit{60'000};
  /// Layers go ahead of a change only if what ranks need before they compute takes longer than this; 0: whatever it is
  /// worth.
  milliseconds feed_from{30};
  milliseconds transfer_limit{60'000}; ///< plus bytes at 10 MB/s
  milliseconds progress_limit{30'000}; ///< no commit for max(this, 10 × the median step): abort
  /// First back-off of a participant that failed; doubles. While that is less than eight times, the job waits for its
  /// return rather than give up steps that only it still holds.
  milliseconds exclusion{1'000};
};

/// What the conductor must know of the model.
struct model_facts {
  std::vector<std::uint64_t> state_bytes;   ///< per layer: parameters and moments
  std::vector<layer_cost> costs;            ///< per layer; times are estimates, for until they are measured
  std::vector<std::uint64_t> cache_bytes{}; ///< per layer: of a position, if the job serves
};

/// How a job that a manager before conducted had gone; mostly for people. Empty: nobody knows.
struct job_past {
  history_status changes; ///< but for the chain, and the steps computed again, which are durable
  training_status training;
  /// The newest version that was reported. Newer than the durable one while its generation trains: the steps between
  /// are lost if nobody is left who has them.
  version reached;
  loss_record losses{}; ///< of the steps committed, as far as they were written down
};

struct conducted_job {
  job_id id;
  job_specification specification;
  model_facts model;
  conductor_options options;
  secret_key secret;     ///< the data plane's tokens follow from it; never sent
  durable_state durable; ///< what the journal has of it; empty: it begins
  job_past past;         ///< likewise

  std::uint32_t layers() const { return static_cast<std::uint32_t>(model.state_bytes.size()); }

  /// Of layers [from, to).
  std::uint64_t state_bytes(std::uint32_t from, std::uint32_t to) const {
    return std::accumulate(model.state_bytes.begin() + from, model.state_bytes.begin() + to, std::uint64_t{0});
  }

  /// Of each layer, what has to be moved before a rank can compute: moments follow.
  std::vector<std::uint64_t> early_bytes() const {
    auto result = model.state_bytes;
    if (specification.transport != "nccl")
      for (auto& x : result)
        x /= 1 + moments_of(specification.optimizer);
    return result;
  }

  /// Of each layer, its gradient.
  std::vector<std::uint64_t> gradient_bytes() const {
    auto result = model.state_bytes;
    for (auto& x : result)
      x /= 1 + moments_of(specification.optimizer);
    return result;
  }

  /// For moving so much.
  std::chrono::milliseconds transfer_limit(std::uint64_t bytes) const {
    return options.transfer_limit + std::chrono::milliseconds(bytes / 10'000);
  }
};

} // namespace parcae
