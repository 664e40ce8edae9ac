#pragma once

// A model whose times are round numbers.

#include "planner/serving/batches.hpp"
#include "planner/serving/pass_model.hpp"
#include "planner/serving/serving_profile.hpp"

#include <cmath>
#include <vector>

namespace parcae::serving {

/// 12 layers of 1 ms a row up to 4 rows, and 0.25 ms more for each row beyond, no hops.
inline pass_model round_model() {
  pass_model result;
  result.name = "round";
  result.layers = 12;
  result.layer_by_degree[1] = {{1, 1}, {4, 1}, {8, 2}};
  result.hop = {{1, 0}};
  result.cache_bytes = 100;
  return result;
}

/// Ten layers; a batch of 2 takes as long as one of 1, a batch of 4 twice as long.
inline serving_profile small_profile() {
  return parse_serving_profile(R"({"name": "small", "layer_num": 10, "padded_layer_num": 12, "hidden_size": 64,
    "max_tp": 2, "final_fix_factor": 1, "pp_init_comm": 20, "pp_incr_comm": 0.5, "embed": [0.5, 0.5, 1],
    "tp-1": {"bsz-1": {"init": 8, "incr": 2}, "bsz-2": {"init": 8, "incr": 2}, "bsz-4": {"init": 16, "incr": 4}},
    "tp-2": {"bsz-1": {"init": 4, "incr": 1}, "bsz-2": {"init": 4, "incr": 1}, "bsz-4": {"init": 8, "incr": 2}}})");
}

/// Whether limits of time mean something.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
inline constexpr bool at_full_speed = false;
#else
inline constexpr bool at_full_speed = true;
#endif

/// Lets all that is under way, and what waits, end; when that was.
inline double run_out(batches& work, request_queue& queue, double now_ms = 0) {
  work.fill(queue, now_ms);
  for (double due = work.next_ms(); std::isfinite(due); due = work.next_ms()) {
    now_ms = due;
    work.advance(due);
    work.fill(queue, due);
  }
  return now_ms;
}

} // namespace parcae::serving
