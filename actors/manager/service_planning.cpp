#include "actors/manager/service_planning.hpp"

#include "planner/cost/realistic_cost.hpp"
#include "planner/serving/service_plan.hpp"
#include "protocols/model/model_description.hpp"
#include "protocols/values/shape.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace parcae {

namespace {

/// What a pass's rows take from one process to the next on a local network, besides their bytes.
constexpr double hop_ms = 0.3;
constexpr double day_ms = 24 * 3'600'000.0;
constexpr double least_per_s = 1.0 / 60; // fewer come than that: as if it were that
constexpr std::uint32_t wanted_pipelines = 2;
constexpr std::uint32_t most_passes = 128; // of a request that is tried

std::vector<serving::served_layer> layers_of(const job_specification& job, const model_description& model) {
  const auto cached = cached_values(job.model);
  std::vector<serving::served_layer> result;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const auto& x = model.layers[i];
    result.push_back({.weight_bytes = x.parameters() * sizeof(float),
                      .row_bytes = static_cast<std::uint64_t>(x.activation_values / job.model.sequence * sizeof(float)),
                      .cached_bytes = cached[i] * sizeof(float),
                      .ms = x.forward_flop});
  }
  return result;
}

serving::grid_terms terms_of(const job_specification& job, const slot_memory& memory) {
  return {.min_depth = job.min_depth,
          .max_depth = job.max_depth,
          .min_width = job.min_width,
          .max_width = job.max_width,
          .context = job.context(),
          .cache_bytes = job.serve.cache_bytes,
          .slot_bytes = memory.bytes};
}

/// The job's model as it was measured.
class measured_service {
public:
  measured_service(const job_specification& job, const situation& now) :
      job_(job), now_(now), model_(describe(job.model)), layers_(layers_of(job, model_)),
      flop_(
          std::accumulate(layers_.begin(), layers_.end(), 0.0, [](double sum, const auto& x) { return sum + x.ms; })) {}

  /// Splits that fit, by depth from 1 on; of those that do not, nothing.
  std::vector<std::vector<std::uint32_t>> splits() const {
    std::vector<std::vector<std::uint32_t>> result;
    auto terms = terms_of(job_, now_.memory);
    terms.min_width = 1;
    const auto deepest = std::min({job_.max_depth, now_.slots, static_cast<std::uint32_t>(layers_.size())});
    for (std::uint32_t depth = 1; depth <= deepest; ++depth) {
      terms.min_depth = terms.max_depth = depth;
      result.push_back(depth < job_.min_depth ? std::vector<std::uint32_t>{}
                                              : serving::choose_grid(layers_, terms, depth).first_layer);
    }
    return result;
  }

  serving::service_load load() const {
    serving::service_load result{std::max(now_.service.arrivals_per_s, least_per_s), {}};
    for (const auto& x : now_.service.answered) {
      const auto prompt = std::min(x.prompt, job_.context() - 1);
      result.lengths.push_back({prompt, std::min(x.tokens, job_.context() - prompt)});
    }
    return result;
  }

  serving::pass_model passes(const std::vector<std::vector<std::uint32_t>>& splits) const {
    serving::pass_model result;
    result.name = job_.name;
    result.layers = static_cast<std::uint32_t>(layers_.size());
    result.padded = true;
    std::vector<serving::measured_pass> measured;
    for (const auto& x : now_.service.passes)
      if (const double share = share_of(x.first_layer, x.last_layer); share > 0)
        measured.push_back({share, static_cast<double>(x.taken.size), x.taken.ms});
    auto& points = result.layer_by_degree[1] = serving::points_of(measured, now_.service.sizes);
    const auto row_bytes = bytes_between();
    for (auto& x : points) {
      x.ms /= result.layers;
      result.hop.push_back({x.rows, hop_ms + x.rows * row_bytes / now_.figures.link_bytes_per_ms});
    }
    for (const auto& first : splits)
      result.longest_by_depth.push_back(longest_of(first) * result.layers);
    return result;
  }

  serving::service_options options(const std::vector<std::vector<std::uint32_t>>& splits,
                                   const serving::service_load& load) const {
    double positions = 0;
    for (const auto& x : load.lengths)
      positions += x.prompt + x.tokens;
    const auto count = static_cast<double>(load.lengths.size());
    serving::service_options result{.limits = {job_.serve.batch, job_.serve.chunk}};
    result.most_passes = most_passes;
    result.min_width = job_.min_width;
    result.max_width = job_.max_width;
    result.wanted_width = std::clamp(wanted_pipelines, job_.min_width, job_.max_width);
    for (const auto& first : splits)
      result.requests_by_depth.push_back(first.empty() ? 0 : requests_in(first, positions / count));
    return result;
  }

private:
  /// Of the model; 0: there are no such layers, or they do nothing.
  double share_of(std::uint32_t first, std::uint32_t last) const {
    if (first >= last || last > layers_.size())
      return 0;
    return std::accumulate(layers_.begin() + first, layers_.begin() + last, 0.0,
                           [](double sum, const auto& x) { return sum + x.ms; }) /
           flop_;
  }

  double longest_of(const std::vector<std::uint32_t>& first) const {
    double result = 0;
    for (std::size_t s = 0; s + 1 < first.size(); ++s)
      result = std::max(result, share_of(first[s], first[s + 1]));
    return result;
  }

  std::uint32_t requests_in(const std::vector<std::uint32_t>& first, double mean_positions) const {
    auto room = std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s + 1 < first.size(); ++s) {
      const auto stage = std::span(layers_).subspan(first[s], first[s + 1] - first[s]);
      const auto positions = serving::positions_in(stage, serving::largest_cache(layers_), job_.serve.cache_bytes);
      room = std::min(room, static_cast<double>(positions));
    }
    return static_cast<std::uint32_t>(std::clamp(room / mean_positions, 1.0, static_cast<double>(job_.serve.batch)));
  }

  /// Of a row, at most, between two stages.
  double bytes_between() const {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i + 1 < model_.layers.size(); ++i)
      most = std::max(most, model_.layers[i].output_values());
    return static_cast<double>(most * sizeof(float)) / job_.model.sequence;
  }

  const job_specification& job_;
  const situation& now_;
  const model_description model_;
  const std::vector<serving::served_layer> layers_;
  const double flop_;
};

plan_answer answer_of(const serving::service_shape& what, std::vector<std::uint32_t> first_layer, std::string why) {
  plan_answer result;
  result.why.policy = "serve";
  result.why.chosen.configuration = to_string(shape{what.width, what.depth});
  result.why.reason = why;
  result.choice = {
      .width = what.width, .depth = what.depth, .first_layer = std::move(first_layer), .reason = std::move(why)};
  return result;
}

plan_answer decide_by_measures(const job_specification& job, const situation& now, double calm_ms) {
  const measured_service measured(job, now);
  const auto splits = measured.splits();
  const auto load = measured.load();
  const auto passes = measured.passes(splits);
  if (passes.hop.empty()) // of stages that there cannot be
    return {};
  serving::service_planner planner(passes, measured.options(splits, load));
  const auto gone = now.current.slots() - std::accumulate(now.left.begin(), now.left.end(), 0u);
  const auto lost = now.running ? std::nullopt : std::optional(gone);
  const auto stall_ms = [&](std::uint32_t slots) { return cost_of(now.figures, lost, slots, 0).stall_ms(); };
  const serving::service_shape present{now.current.width, now.current.depth};
  const bool stays = now.running && gone == 0; // else there is a change in any case
  const auto found = stays ? planner.choose(now.slots, load, present, {stall_ms(now.slots), calm_ms})
                           : planner.choose(now.slots, load);
  const auto& best = found.best;
  auto result = answer_of(
      best.shape, best.shape.width > 0 ? splits[best.shape.depth - 1] : std::vector<std::uint32_t>{}, found.why);
  result.why.p99_ms = best.p99_ms;
  result.why.requests_per_s = best.most_per_s;
  if (best.shape.width > 0 && !(stays && best.shape == present))
    result.why.expected_ms = stall_ms(best.shape.slots());
  return result;
}

} // namespace

serving::grid_choice grid_for(const job_specification& job, std::uint32_t slots, const slot_memory& memory) {
  return serving::choose_grid(layers_of(job, describe(job.model)), terms_of(job, memory), slots);
}

plan_answer decide_for_service(const job_specification& job, const situation& now, double calm_ms) {
  auto grid = grid_for(job, now.slots, now.memory);
  if (grid.width > 0 && now.service.is_enough())
    if (auto result = decide_by_measures(job, now, calm_ms); result.choice.width > 0)
      return result;
  return answer_of({grid.width, grid.depth}, std::move(grid.first_layer), std::move(grid.why));
}

double calm_ms_of(const job_specification& job, const availability_lattice& future) {
  const auto interval = static_cast<double>(job.planning_interval_ms);
  return interval * intervals_until_change(future, day_ms / interval);
}

} // namespace parcae
