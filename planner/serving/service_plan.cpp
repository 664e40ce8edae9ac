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

constexpr double p99 = 0.99;
constexpr double near = 1.02;     // P99s that are as good as alike
constexpr double hardly = 1.05;   // better than the present shape: no reason to change
constexpr double more_done = 1.1; // than it does: a reason, if none keeps up

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

// Of so many in order, above none.
std::ptrdiff_t rank_of_quantile(std::size_t count, double q) {
  return std::min(static_cast<std::ptrdiff_t>(static_cast<double>(count) * q), static_cast<std::ptrdiff_t>(count) - 1);
}

} // namespace

double latency_quantile(std::vector<double> latencies, double q) {
  if (latencies.empty())
    return 0;
  const auto place = latencies.begin() + rank_of_quantile(latencies.size(), q);
  std::nth_element(latencies.begin(), place, latencies.end());
  return *place;
}

std::string to_string(const service_shape& x) {
  return counted(x.width, "pipeline") + " of " + counted(x.depth, "stage") +
         (x.degree > 1 ? ", each of " + std::to_string(x.degree) + " slots" : "");
}

service_planner::service_planner(const pass_model& model, service_options options) : model_(model), options_(options) {}

batch_limits service_planner::limits_at(std::uint32_t depth) const {
  auto result = options_.limits;
  if (const auto& most = options_.requests_by_depth; !most.empty())
    result.requests = depth <= most.size() ? std::min(result.requests, most[depth - 1]) : 0;
  return result;
}

bool service_planner::allows(const service_shape& x, std::uint32_t slots) const {
  return x.slots() <= slots && x.slots_each() >= options_.least_slots && x.width >= options_.min_width &&
         x.width <= options_.max_width && limits_at(x.depth).requests > 0;
}

std::vector<served_request> service_planner::run(const service_shape& shape, const arrival_list& arrivals,
                                                 const enough& is_enough) const {
  std::vector<served_request> requests;
  for (const auto& x : arrivals)
    requests.push_back({x});
  const auto work = continuous_batches(model_, limits_at(shape.depth), requests);
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
      work->fill(queue, due);
      if (is_enough && is_enough(due, requests, queue))
        return requests;
    } else {
      return requests;
    }
  }
}

std::pair<double, service_load> service_planner::tried(const service_load& load) const {
  double passes = 0;
  for (const auto& x : load.lengths)
    passes += x.tokens + x.prompt / options_.limits.chunk;
  const auto by = std::max(1.0, passes / static_cast<double>(load.lengths.size()) / options_.most_passes);
  auto result = load;
  result.per_s *= by;
  if (by > 1)
    for (auto& x : result.lengths)
      for (auto* n : {&x.prompt, &x.tokens})
        *n = std::max(1u, static_cast<std::uint32_t>(std::lround(*n / by)));
  return {by, std::move(result)};
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
  const auto filling = limits_at(shape.depth).requests;
  const auto count = 3 * filling;
  const auto [by, shorter] = tried(load);
  auto all = draw_arrivals({1, 1}, shorter.lengths, count, options_.seed);
  for (auto& x : all)
    x.ms = 0;
  double begun_ms = 0;
  run({1, shape.depth, shape.degree}, all, [&](double now_ms, const auto&, const auto& queue) {
    begun_ms = now_ms;
    return queue.empty();
  });
  return found->second = (count - filling) / begun_ms * 1000 / by;
}

service_figures service_planner::figures(const service_shape& shape, const service_load& load, double most_ms) {
  service_figures result{shape, 0, 0, shape.width * pipeline_per_s(shape, load), false};
  result.keeps_up = load.per_s < result.most_per_s;
  // Pipelines are alike, and each gets its part of what comes: so some of many say how all are, as long as several
  // times as many requests are tried as they can have at once.
  auto part = shape;
  part.width =
      std::clamp(options_.requests / (3 * limits_at(shape.depth).requests), 1u, std::min(shape.width, most_tried));
  const auto [by, shorter] = tried(load);
  const double per_s = shorter.per_s * part.width / shape.width;
  const auto arrivals = draw_arrivals({per_s, 1}, shorter.lengths, options_.requests, options_.seed);
  const auto ms_of = [by = by](const served_request& x, double end_ms) { return (end_ms - x.from.ms) * by; };
  // Those that have not ended by then are late, whenever they end; with so many late ones the P99 is.
  const auto too_many = std::ssize(arrivals) - rank_of_quantile(arrivals.size(), p99);
  std::ptrdiff_t late = 0;
  std::size_t next = 0;
  const auto requests = run(part, arrivals, [&](double now_ms, const auto& all, const auto&) {
    for (; next < all.size() && ms_of(all[next], now_ms) > most_ms; ++next)
      late += all[next].end_ms < 0 || ms_of(all[next], all[next].end_ms) > most_ms ? 1 : 0;
    return late >= too_many;
  });
  if (late >= too_many) {
    result.mean_ms = result.p99_ms = std::numeric_limits<double>::infinity();
    return result;
  }
  std::vector<double> latencies;
  for (const auto& x : requests)
    latencies.push_back(ms_of(x, x.end_ms));
  result.mean_ms = std::accumulate(latencies.begin(), latencies.end(), 0.0) / static_cast<double>(latencies.size());
  result.p99_ms = latency_quantile(std::move(latencies), p99);
  return result;
}

// Of depths whose longest stage is as long the least: others have more hops and nothing for it. Those that are fastest
// with one request first.
std::vector<service_planner::candidate> service_planner::candidates(std::uint32_t slots,
                                                                    const service_load& load) const {
  const auto [by, shorter] = tried(load);
  request_lengths mean{0, 0};
  const auto count = static_cast<std::uint32_t>(shorter.lengths.size());
  for (const auto& x : shorter.lengths) {
    mean.prompt += x.prompt;
    mean.tokens += x.tokens;
  }
  const arrival_list one{{0, {std::max(1u, mean.prompt / count), std::max(1u, mean.tokens / count)}}};
  std::vector<candidate> result;
  for (const auto& [degree, points] : model_.layer_by_degree) {
    auto longest = std::numeric_limits<double>::infinity();
    for (std::uint32_t depth = 1; depth <= model_.layers && depth * degree <= slots; ++depth) {
      const auto stage = model_.longest_stage(depth);
      const service_shape shape{std::min(options_.max_width, slots / (depth * degree)), depth, degree};
      if (stage >= longest || !allows(shape, slots))
        continue;
      longest = stage;
      result.push_back({shape, run({1, depth, degree}, one, {})[0].end_ms * by});
    }
  }
  const auto has_few = [&](const auto& x) { return x.shape.width < options_.wanted_width; };
  if (!std::ranges::all_of(result, has_few))
    std::erase_if(result, has_few);
  std::ranges::stable_sort(result, {}, &candidate::alone_ms);
  return result;
}

// Those that keep up and have about the least P99, the least first, and the next one.
std::vector<service_figures> service_planner::near_best(const std::vector<candidate>& all, const service_load& load,
                                                        double& least_ms) {
  std::vector<service_figures> result;
  least_ms = std::numeric_limits<double>::infinity();
  for (const auto& x : all) {
    if (x.alone_ms > least_ms * near)
      break; // with others it is no faster
    if (load.per_s >= x.shape.width * pipeline_per_s(x.shape, load))
      continue;
    auto next_ms = std::numeric_limits<double>::infinity(); // what is beyond is neither near the least nor the next
    for (const auto& known : result)
      if (known.p99_ms > least_ms * near)
        next_ms = std::min(next_ms, known.p99_ms);
    const auto tried = figures(x.shape, load, next_ms);
    if (std::isinf(tried.p99_ms))
      continue;
    result.push_back(tried);
    least_ms = std::min(least_ms, tried.p99_ms);
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
    const auto tried = figures(shape, load, most_ms);
    if (tried.p99_ms > most_ms)
      return false;
    result = tried;
    return true;
  };
  auto high = x.shape.width;
  auto low = std::max({static_cast<std::uint32_t>(load.per_s / pipeline_per_s(x.shape, load)) + 1, options_.min_width,
                       std::min(options_.wanted_width, high)});
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
  const auto& best = result.best;
  if (present.width == 0 || !allows(present, slots) || best.shape == present || best.shape.width == 0 ||
      present.width < std::min(options_.wanted_width, best.shape.width))
    return result;
  const auto now = figures(present, load);
  const auto stay = [&](const std::string& why) {
    return service_choice{now, "stays with " + told(now, load) + "; " + to_string(best.shape) + ", p99 " +
                                   text_of_ms(best.p99_ms) + ", " + why};
  };
  if (!now.keeps_up)
    return best.keeps_up || best.most_per_s > more_done * now.most_per_s ? result : stay("does hardly more");
  if (now.mean_ms < hardly * best.mean_ms && now.p99_ms < hardly * best.p99_ms)
    return stay("is hardly better");
  // In requests times milliseconds: those that are there, and those that come meanwhile, wait for the stall.
  const double per_ms = load.per_s / 1000;
  const double cost = terms.stall_ms * per_ms * (now.mean_ms + terms.stall_ms / 2);
  const double gain = terms.calm_ms * per_ms * (now.mean_ms - best.mean_ms);
  return gain > cost ? result : stay("is not worth a stall of " + text_of_ms(terms.stall_ms));
}

} // namespace parcae::serving
