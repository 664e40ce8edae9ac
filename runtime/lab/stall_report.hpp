#pragma once

// Where a step's time goes on this kind of machine: what was measured in each configuration, and the stalls that follow
// as differences of runs, as Stash has them (Sharma et al., "Stash: A comprehensive stall-centric characterization of
// public cloud VMs for distributed deep learning", ICDCS 2022). Plain.

#include "protocols/base/described.hpp"
#include "protocols/values/step_parts.hpp"

#include <boost/describe/enum.hpp>
#include <boost/json/object.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// Where the samples of a run come from.
enum class sample_origin : std::uint8_t {
  made_up, ///< no file is read
  cached,  ///< files that the machine has in memory
  cold,    ///< the same, thrown out of its memory again and again
};
BOOST_DESCRIBE_ENUM(sample_origin, made_up, cached, cold)

/// What the time of a step may be spent on; means per step and slot, ms. They add up to the step.
struct step_causes {
  double computing_ms = 0;
  double core_ms = 0;        ///< ready to compute, but others had the core
  double data_ms = 0;        ///< waiting for samples
  double pipeline_ms = 0;    ///< waiting for the stages beside: the bubble
  double activations_ms = 0; ///< they and their gradients, between stages
  double reduction_ms = 0;   ///< of gradients
  double exchange_ms = 0;    ///< of each commit
  double snapshot_ms = 0;    ///< copies for the keepers
  double other_ms = 0;       ///< between two steps
};
BOOST_DESCRIBE_STRUCT(step_causes, (),
                      (computing_ms, core_ms, data_ms, pipeline_ms, activations_ms, reduction_ms, exchange_ms,
                       snapshot_ms, other_ms))

step_causes causes_of(const step_parts& x);
double total_ms(const step_causes& x);

/// A job in one configuration, with as much work for each slot as one slot alone has.
struct stall_run {
  std::uint32_t width = 1, depth = 1;
  sample_origin samples = sample_origin::made_up;
  bool over_hosts = false;          ///< each slot as if it were a host; else all are one
  double step_ms = 0;               ///< by the clock and the steps committed
  step_causes causes{};             ///< by the timers of the slots
  std::uint64_t steps = 0;          ///< committed while it was measured
  std::uint64_t traced = 0;         ///< of these the timers tell
  std::uint64_t gradient_bytes = 0; ///< of the model
};

/// The difference of two runs that differ in one thing.
struct step_stall {
  std::string kind; ///< interconnect, network, preparation or fetch
  std::uint32_t width = 1, depth = 1;
  double by_runs_ms = 0;  ///< by the clock
  step_causes by_cause{}; ///< likewise, by the timers; below 0: there was less of it
  double allowed_ms = 0;  ///< how far apart the two may be: a clock's grain, and what speeds of a machine drift
  bool explained = false;
};

struct stall_measurements {
  std::string job;
  double link_bytes_per_s = 0;        ///< of the runs over hosts; 0: there are none
  std::vector<std::string> remarks{}; ///< what was left out, and why
  std::vector<stall_run> runs{};
};

/// interconnect: k slots of one host less one slot; network: k slots over hosts less k slots of one host, both with
/// samples that are made up (cached, where none can be); preparation: cached samples less made-up ones; fetch: cold
/// less cached ones.
std::vector<step_stall> stalls_of(const std::vector<stall_run>& runs);

boost::json::object to_json(const stall_measurements& x);

/// For people.
std::string to_string(const stall_measurements& x);

} // namespace parcae
