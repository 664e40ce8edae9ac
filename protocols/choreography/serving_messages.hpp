#pragma once

// What is said of a model that is served, besides what is said in every job (choreography.hpp, which has it all).

#include "protocols/base/described.hpp"
#include "protocols/choreography/placement.hpp"
#include "protocols/values/ids.hpp"
#include "protocols/values/job_specification.hpp"
#include "protocols/values/secrets.hpp"
#include "protocols/values/serving.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// To gateways: who serves now, in the place of what was said before. A gateway is no participant of a generation: it
/// may come, go and stand still without changing one. While a generation stops, what was said of it holds: its
/// pipelines say themselves when they are drained. Answer: routed.
struct route {
  job_id job;
  generation current; ///< whose pipelines they are; 0: nobody serves
  data_token token;   ///< of PREPARE: that connections to its ranks show
  job_specification specification;
  placement target;                 ///< as in PREPARE; of width 0: nobody serves
  std::vector<std::uint32_t> sizes; ///< of passes, rising: all ranks have proven that they give the same bits
};
BOOST_DESCRIBE_STRUCT(route, (), (job, current, token, specification, target, sizes))

/// Sizes of passes in which a row's bits depend on nothing else in the pass, as a worker has found.
struct proven_sizes {
  std::uint32_t reference = 0;        ///< whose bits are meant; 0: nothing was tried, as the job trains
  std::vector<std::uint32_t> sizes{}; ///< rising, the reference among them: all give its bits

  friend bool operator==(const proven_sizes&, const proven_sizes&) = default;
};
BOOST_DESCRIBE_STRUCT(proven_sizes, (), (reference, sizes))

/// Where others say PROGRESS: a rank of a job that serves is there, by the thread that computes. At once when it is
/// active, then each second, whether or not there was something to compute.
struct served {
  generation current;
  std::uint64_t passes = 0; ///< since the last report
  std::uint64_t rows = 0;   ///< in them, without padding
  double pass_ms = 0;       ///< of each, mean
  std::uint64_t cache_blocks = 0;
  std::uint64_t free_blocks = 0;       ///< of these
  std::uint64_t peak_bytes = 0;        ///< as in PROGRESS
  std::vector<sized_passes> by_size{}; ///< the passes, smaller ones first; at most `most_pass_sizes`
};
BOOST_DESCRIBE_STRUCT(served, (), (current, passes, rows, pass_ms, cache_blocks, free_blocks, peak_bytes, by_size))

/// From a gateway: what it goes by, and how requests fare. Answers ROUTE, and comes each second from then on: while it
/// is not what was said last, ROUTE is said again.
struct routed {
  job_id job;
  generation current;          ///< of the newest ROUTE
  std::uint32_t pipelines = 0; ///< that this had
  request_figures requests;
  std::string problem;                      ///< why it answers nobody, one line; empty: it does, if somebody serves
  std::vector<std::uint64_t> cached{};      ///< by pipeline: positions that its requests have in caches
  std::vector<answered_request> answered{}; ///< the newest, at most `most_answered_told`
};
BOOST_DESCRIBE_STRUCT(routed, (), (job, current, pipelines, requests, problem, cached, answered))

} // namespace parcae
