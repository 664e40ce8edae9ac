#include "planner/serving/service_plan.hpp"

#include "protocols/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <tuple>

namespace parcae::serving {

namespace {

constexpr double near = 1.02; // P99s that are as good as alike

constexpr std::uint32_t most_tried = 4; // pipelines

std::string figure(double x, const char* format) {
  char text[40];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

std::string told(const service_figures& x, const service_load& load) {
  return to_string(x.shape) + ": p99 " + text_of_ms(x.p99_ms) + " at " + figure(load.per_s, "%.3g") +
         " requests a second, " + figure(100 * load.per_s / x.most_per_s, "%.0f") + " % of what they can do";
}

// In order of preference among shapes that are as good.
bool is_smaller(const service_shape& a, const service_shape& b) {
  return std::tuple(a.slots(), a.depth, a.degree) < std::tuple(b.slots(), b.depth, b.degree);
}

} // namespace

double latency_quantile(std::vector<double> latencies, double q) {
  if (latencies.empty())
    return 0;
  const auto rank = static_cast<std::ptrdiff_t>(static_cast<double>(latencies.size()) * q);
  const auto place = latencies.begin() + std::min(rank, std::ssize(latencies) - 1);
  std::nth_element(latencies.begin(), place, latencies.end());
  return *place;
}

std::string to_string(const service_shape& x) {
  return counted(x.width, "pipeline") + " of " + counted(x.depth, "stage") +
         (x.degree > 1 ? ", each of " + std::to_string(x.degree) + " slots" : "");
}

service_planner::service_planner(const pass_model& model, service_options options) : model_(model), options_(options) {}

// `begun_ms`: when the last one entered a pipeline.
std::vector<served_request> service_planner::run(const service_shape& shape, const arrival_list& arrivals,
                                                 double* begun_ms) const {
  std::vector<served_request> requests;
  for (const auto& x : arrivals)
    requests.push_back({x});
  const auto work = continuous_batches(model_, options_.limits, requests);
  request_queue queue;
  work->change(shape, {}, queue, 0);
  for (std::size_t next = 0;;) {
    const double due = work->next_ms();
    if (next < arrivals.size() && arrivals[next].ms <= due) {
      const auto now = arrivals[next].ms;
      while (next < arrivals.size() && arrivals[next].ms <= now)
        queue.push_back(static_cast<std::uint32_t>(next++));
      work->fill(queue, now);
    } else if (std::isfinite(due)) {
      work->advance(due);
      const bool waited = !queue.empty();
      work->fill(queue, due);
      if (waited && queue.empty() && begun_ms)
        *begun_ms = due;
    } else {
      return requests;
    }
  }
}

// Of those that come all at once, how many begin a second while others wait.
double service_planner::pipeline_per_s(const service_shape& shape, const service_load& load) {
  if (lengths_ != load.lengths) {
    lengths_ = load.lengths;
    pipeline_per_s_.clear();
  }
  const auto [found, is_new] = pipeline_per_s_.emplace(std::pair(shape.depth, shape.degree), 0);
  if (!is_new)
    return found->second;
  const auto count = 3 * options_.limits.requests;
  auto all = draw_arrivals({1, 1}, load.lengths, count, options_.seed);
  for (auto& x : all)
    x.ms = 0;
  double begun_ms = 0;
  run({1, shape.depth, shape.degree}, all, &begun_ms);
  return found->second = (count - options_.limits.requests) / begun_ms * 1000;
}

service_figures service_planner::figures(const service_shape& shape, const service_load& load) {
  service_figures result{shape, 0, 0, shape.width * pipeline_per_s(shape, load), false};
  result.keeps_up = load.per_s < result.most_per_s;
  // Pipelines are alike, and each gets its part of what comes: so some of many say how all are, as long as several
  // times as many requests are tried as they can have at once.
  auto part = shape;
  part.width = std::clamp(options_.requests / (3 * options_.limits.requests), 1u, std::min(shape.width, most_tried));
  const double per_s = load.per_s * part.width / shape.width;
  const auto requests = run(part, draw_arrivals({per_s, 1}, load.lengths, options_.requests, options_.seed), nullptr);
  std::vector<double> latencies;
  for (const auto& x : requests)
    latencies.push_back(x.end_ms - x.from.ms);
  result.mean_ms = std::accumulate(latencies.begin(), latencies.end(), 0.0) / static_cast<double>(latencies.size());
  result.p99_ms = latency_quantile(std::move(latencies), 0.99);
  return result;
}

// Of depths whose longest stage is as long the least: others have more hops and nothing for it. Those that are fastest
// with one request first.
std::vector<service_planner::candidate> service_planner::candidates(std::uint32_t slots,
                                                                    const service_load& load) const {
  request_lengths mean{0, 0};
  const auto count = static_cast<std::uint32_t>(load.lengths.size());
  for (const auto& x : load.lengths) {
    mean.prompt += x.prompt;
    mean.tokens += x.tokens;
  }
  const arrival_list one{{0, {std::max(1u, mean.prompt / count), std::max(1u, mean.tokens / count)}}};
  std::vector<candidate> result;
  for (const auto& [degree, points] : model_.layer_by_degree) {
    auto longest = std::numeric_limits<std::uint32_t>::max();
    for (std::uint32_t depth = 1; depth <= model_.layers && depth * degree <= slots; ++depth) {
      const auto stage = (model_.layers + depth - 1) / depth;
      if (depth * degree < options_.least_slots || stage >= longest)
        continue;
      longest = stage;
      result.push_back({{slots / (depth * degree), depth, degree}, run({1, depth, degree}, one, nullptr)[0].end_ms});
    }
  }
  std::ranges::stable_sort(result, {}, &candidate::alone_ms);
  return result;
}

// Those that keep up with about the least P99, the least first; if there are none, all.
std::vector<service_figures> service_planner::near_best(const std::vector<candidate>& all, const service_load& load,
                                                        double& least_ms) {
  std::vector<service_figures> result;
  least_ms = std::numeric_limits<double>::infinity();
  for (const auto& x : all) {
    if (x.alone_ms > least_ms * near)
      break; // with others it is no faster
    if (load.per_s >= x.shape.width * pipeline_per_s(x.shape, load))
      continue;
    result.push_back(figures(x.shape, load));
    least_ms = std::min(least_ms, result.back().p99_ms);
  }
  std::ranges::stable_sort(result, {}, &service_figures::p99_ms);
  return result;
}

// As few as keep up with that P99; as it is if that takes more slots than `most_slots`.
service_figures service_planner::fewest_pipelines(const service_figures& x, const service_load& load, double most_ms,
                                                  std::uint32_t most_slots) {
  auto result = x;
  const auto is_good = [&](std::uint32_t width) {
    auto shape = x.shape;
    shape.width = width;
    const auto tried = figures(shape, load);
    if (tried.p99_ms > most_ms)
      return false;
    result = tried;
    return true;
  };
  auto low = static_cast<std::uint32_t>(load.per_s / pipeline_per_s(x.shape, load)) + 1, high = x.shape.width;
  if (const auto most = most_slots / x.shape.slots_each(); most < high) {
    if (most < low || !is_good(most))
      return x;
    high = most;
  }
  while (low < high) {
    const auto width = (low + high) / 2;
    if (is_good(width))
      high = width;
    else
      low = width + 1;
  }
  return result;
}

service_choice service_planner::choose(std::uint32_t slots, const service_load& load) {
  const auto all = candidates(slots, load);
  if (all.empty())
    return {{},
            "nothing fits " + counted(slots, "slot") + ": a pipeline needs " + std::to_string(options_.least_slots)};
  double least_ms = 0;
  const auto good = near_best(all, load, least_ms);
  if (good.empty()) {
    const auto most =
        std::ranges::max_element(all, {}, [&](const auto& x) { return x.shape.width * pipeline_per_s(x.shape, load); });
    const auto x = figures(most->shape, load);
    return {x, told(x, load) + "; none keeps up, this does most"};
  }
  std::optional<service_figures> best;
  std::string other;
  for (const auto& x : good) {
    if (x.p99_ms > least_ms * near) {
      other = "; " + to_string(x.shape) + " would have " + text_of_ms(x.p99_ms);
      break;
    }
    const auto fewer = fewest_pipelines(x, load, least_ms * near, best ? best->shape.slots() : UINT32_MAX);
    if (!best || is_smaller(fewer.shape, best->shape))
      best = fewer;
  }
  return {*best, told(*best, load) + other};
}

service_choice service_planner::choose(std::uint32_t slots, const service_load& load, const service_shape& present,
                                       const change_terms& terms) {
  auto result = choose(slots, load);
  if (present.width == 0 || present.slots() > slots || result.best.shape == present || result.best.shape.width == 0)
    return result;
  const auto now = figures(present, load);
  if (!now.keeps_up)
    return result;
  // In requests times milliseconds: those that are there, and those that come meanwhile, wait for the stall.
  const double per_ms = load.per_s / 1000;
  const double cost = terms.stall_ms * per_ms * (now.mean_ms + terms.stall_ms / 2);
  const double gain = terms.calm_ms * per_ms * (now.mean_ms - result.best.mean_ms);
  if (gain > cost)
    return result;
  return {now, "stays with " + told(now, load) + "; " + to_string(result.best.shape) + ", p99 " +
                   text_of_ms(result.best.p99_ms) + ", is not worth a stall of " + text_of_ms(terms.stall_ms)};
}

} // namespace parcae::serving
