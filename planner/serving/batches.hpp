#pragma once

// How requests are computed on some pipelines, in virtual time: in continuous batches, by the gateway's own schedule,
// or in static ones, as SpotServe does. Whoever drives them tells the time. Pure.

#include "planner/serving/arrivals.hpp"
#include "planner/serving/pass_model.hpp"
#include "planner/serving/spotserve.hpp"
#include "protocols/schedule/pass_schedule.hpp"

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace parcae::serving {

/// Pipelines of a served model.
struct service_shape {
  std::uint32_t width = 0;  ///< pipelines
  std::uint32_t depth = 1;  ///< stages of each
  std::uint32_t degree = 1; ///< of tensor parallelism; 1 in this project, as partial sums would change bits with it
  std::uint32_t prompt_parts = 1; ///< of static batches: micro-batches in which prompts are computed
  std::uint32_t token_parts = 1;  ///< and tokens

  std::uint32_t slots_each() const { return depth * degree; }
  std::uint32_t slots() const { return width * slots_each(); }
  friend bool operator==(const service_shape&, const service_shape&) = default;
};

/// What becomes of a request.
struct served_request {
  arrival from;
  double first_ms = -1; ///< its first new token; below 0: not yet
  double end_ms = -1;
  std::uint32_t tokens = 0;   ///< new ones so far
  std::uint64_t computed = 0; ///< positions, each time anew
};

/// Positions that are computed when it begins anew, or goes on without its caches.
inline std::uint32_t known_positions(const served_request& x) {
  return x.from.lengths.prompt + x.tokens;
}

/// Numbers of requests, those that wait longest first.
using request_queue = std::deque<std::uint32_t>;

/// Puts them back: the queue is in order of arrival.
void put_back(request_queue& queue, std::vector<std::uint32_t> numbers);

/// When something is due, if nothing is.
inline constexpr double nothing_due = std::numeric_limits<double>::infinity();

class batches {
public:
  virtual ~batches() = default;

  /// Those that find a place leave the queue.
  virtual void fill(request_queue& queue, double now_ms) = 0;

  /// When something is due next.
  virtual double next_ms() const = 0;

  /// What is due by then has happened.
  virtual void advance(double now_ms) = 0;

  /// Nothing is begun any more; what is under way ends. Whether nothing is, by now.
  virtual bool stop(double now_ms) = 0;

  /// Positions whose caches could be taken over, by pipeline. Stopped.
  virtual std::vector<std::uint64_t> cached() const = 0;

  /// Other pipelines, from `now_ms` on. `heirs`: by old pipeline the new one that has its caches, or none. Requests of
  /// those without one go to the queue's head, in order of arrival. Stopped.
  virtual void change(const service_shape& shape, const std::vector<std::optional<std::uint32_t>>& heirs,
                      request_queue& queue, double now_ms) = 0;

  virtual std::size_t running() const = 0;
};

struct batch_limits {
  std::uint32_t requests = 64; ///< of a pipeline at once
  std::uint32_t chunk = 64;    ///< rows of prompts in a pass
};

/// By pass_schedule over measured passes. All arguments must outlive it.
std::unique_ptr<batches> continuous_batches(const pass_model& model, const batch_limits& limits,
                                            std::vector<served_request>& requests);

/// A pipeline that is free takes as many as wait, a power of two up to `max_batch`, and has no other before all are
/// done. Committed by token: after a change a batch goes on behind the tokens it has. Positions and times are the
/// published ones, longer prompts in proportion; all of a batch take as long as its longest. Arguments as above.
std::unique_ptr<batches> static_batches(const serving_profile& profile, std::uint32_t max_batch,
                                        std::vector<served_request>& requests);

} // namespace parcae::serving
