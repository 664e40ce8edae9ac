#include "planner/cost/realistic_cost.hpp"

#include "planner/cost/hypergeometric.hpp"
#include "planner/situation/placement.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>

namespace parcae {

namespace {

// Weight of each way in which replicas are left, by stage.
using weighted = std::map<std::vector<std::uint32_t>, double>;

// Number of ways to lose `lost` slots that differ in how many replicas each stage has left; stops counting at `most`.
std::size_t count_losses(const shape& from, std::uint32_t lost, std::size_t most) {
  std::vector<std::size_t> ways(lost + 1, 0);
  ways[0] = 1;
  for (std::uint32_t stage = 0; stage < from.depth; ++stage)
    for (auto k = lost + 1; k-- > 0;)
      for (std::uint32_t here = 1; here <= std::min(from.width, k); ++here)
        ways[k] = std::min(most, ways[k] + ways[k - here]);
  return ways[lost];
}

// All ways to lose slots one by one, each weighted by the number of subsets it stands for.
void enumerate_slots(const shape& from, std::uint32_t lost, weighted& result) {
  std::vector<std::uint32_t> left(from.depth, from.width);
  std::function<void(std::uint32_t, std::uint32_t, double)> add = [&](std::uint32_t stage, std::uint32_t rest,
                                                                      double weight) {
    if (stage == from.depth) {
      if (rest == 0)
        result[left] += weight;
      return;
    }
    double ways = 1; // C(width, here)
    for (std::uint32_t here = 0; here <= std::min(from.width, rest); ++here) {
      left[stage] = from.width - here;
      add(stage + 1, rest - here, weight * ways);
      ways = ways * (from.width - here) / (here + 1);
    }
    left[stage] = from.width;
  };
  add(0, lost, 1);
}

void lose_instance(const shape& from, std::uint32_t devices, std::uint32_t instance, std::vector<std::uint32_t>& left) {
  for (auto slot = instance * devices; slot < std::min((instance + 1) * devices, from.slots()); ++slot)
    --left[slot % from.depth];
}

void enumerate_instances(const shape& from, std::uint32_t devices, std::uint32_t instances, std::uint32_t lost,
                         weighted& result) {
  std::vector<bool> chosen(instances, false);
  std::fill(chosen.begin(), chosen.begin() + lost, true);
  do {
    std::vector<std::uint32_t> left(from.depth, from.width);
    for (std::uint32_t i = 0; i < instances; ++i)
      if (chosen[i])
        lose_instance(from, devices, i, left);
    result[left] += 1;
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
}

void draw_instances(const shape& from, std::uint32_t devices, std::uint32_t instances, std::uint32_t lost,
                    std::size_t draws, weighted& result) {
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> order(instances);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t n = 0; n < draws; ++n) {
    std::vector<std::uint32_t> left(from.depth, from.width);
    for (std::uint32_t i = 0; i < lost; ++i) {
      std::swap(order[i], order[i + random() % (instances - i)]);
      lose_instance(from, devices, order[i], left);
    }
    result[left] += 1;
  }
}

std::vector<double> state_bytes(const profile& workload) {
  std::vector<double> result;
  for (const auto& x : workload.layers)
    result.push_back(x.parameters * workload.state_bytes_per_parameter());
  return result;
}

// Part of a link that is free for state while training goes on.
constexpr double behind = 0.7;

// Part of a step that is over before its apply needs moments.
constexpr double before_apply = 0.9;

// A feed is begun if the link could carry a step's gradients that many times.
constexpr double least_headroom = 1.25;

// Layers are followed from a step's end on; at the next one they are there, and who trains is told to stop at the one
// behind that.
constexpr double steps_to_follow = 2;

// C(n, k), or more than `most` if it is.
double subsets(std::uint32_t n, std::uint32_t k, double most) {
  double result = 1;
  for (std::uint32_t i = 0; i < std::min(k, n - k) && result <= most; ++i)
    result = result * (n - i) / (i + 1);
  return result;
}

} // namespace

std::uint64_t busiest_link_bytes(std::span<const shard_move> moves, std::span<const std::uint64_t> layer_bytes) {
  std::map<std::uint32_t, std::uint64_t> sent, received;
  std::uint64_t most = 0;
  for (const auto& x : moves)
    most = std::max({most, sent[x.source] += layer_bytes[x.layer], received[x.destination] += layer_bytes[x.layer]});
  return most;
}

change_figures figures_of(const profile& workload) {
  return workload.changes.value_or(change_figures{});
}

double making_ready_ms(const change_figures& figures) {
  return figures.plan_ms + figures.prepare_ms + figures.transfer_ms + figures.activate_ms;
}

double settle_ms(const change_figures& figures, std::uint32_t lost) {
  return figures.settle_ms + lost * figures.loss_ms;
}

change_cost cost_of(const change_figures& figures, std::optional<std::uint32_t> lost, std::uint32_t ranks,
                    double early_bytes) {
  change_cost result;
  result.messages_ms = figures.transfer_ms + figures.activate_ms + ranks * figures.rank_ms;
  if (lost)
    result.messages_ms += settle_ms(figures, *lost) + figures.plan_ms + figures.prepare_ms;
  result.bytes_ms = early_bytes / figures.link_bytes_per_ms;
  return result;
}

change_cost moving_cost(const change_figures& figures, double early_bytes, double late_bytes, double step_ms) {
  const double rate = figures.link_bytes_per_ms;
  const double beside_the_step = behind * rate * before_apply * step_ms;
  return {.bytes_ms = early_bytes / rate, .late_ms = std::max(late_bytes - beside_the_step, 0.0) / rate};
}

std::optional<feed_cost> feeding_cost(const change_figures& figures, double step_ms, double next_step_ms,
                                      double gradient_bytes, double bytes) {
  const double rate = behind * figures.link_bytes_per_ms;
  if (rate * step_ms < least_headroom * gradient_bytes)
    return std::nullopt;
  const double takes_ms = steps_to_follow * step_ms + bytes / rate;
  return feed_cost{takes_ms, takes_ms * std::max(0.0, 1 - next_step_ms / step_ms)};
}

realistic_cost::realistic_cost(const profile& workload, const realistic_options& options) :
    workload_(workload), options_(options), layer_bytes_(state_bytes(workload)),
    kept_(options.kept, layer_bytes_, options.figures.link_bytes_per_ms) {
  if (options_.devices < 1 || !(options_.notice_ms >= 0))
    throw std::invalid_argument("realistic costs need devices, and notice that is no less than 0");
}

const realistic_cost::cut& realistic_cost::cut_of(std::uint32_t depth) {
  auto& result = cuts_[depth];
  if (!result.first_layer.empty())
    return result;
  std::vector<double> layer_ms;
  for (const auto& x : workload_.layers)
    layer_ms.push_back(x.forward_ms + x.backward_ms);
  result.first_layer = partition_layers(layer_ms, depth);
  for (std::uint32_t stage = 0; stage < depth; ++stage)
    result.bytes.push_back(std::accumulate(layer_bytes_.begin() + result.first_layer[stage],
                                           layer_bytes_.begin() + result.first_layer[stage + 1], 0.0));
  return result;
}

const std::vector<realistic_cost::overlap>& realistic_cost::overlaps_of(std::uint32_t from_depth,
                                                                        std::uint32_t to_depth) {
  auto& result = overlaps_[{from_depth, to_depth}];
  if (!result.empty())
    return result;
  const auto& old_cut = cut_of(from_depth).first_layer;
  const auto& new_cut = cut_of(to_depth).first_layer;
  for (std::uint32_t from = 0; from < from_depth; ++from)
    for (std::uint32_t to = 0; to < to_depth; ++to) {
      const auto begin = std::max(old_cut[from], new_cut[to]), end = std::min(old_cut[from + 1], new_cut[to + 1]);
      if (begin < end)
        result.push_back({from, to, std::accumulate(layer_bytes_.begin() + begin, layer_bytes_.begin() + end, 0.0)});
    }
  std::stable_sort(result.begin(), result.end(), [](const overlap& a, const overlap& b) { return a.bytes > b.bytes; });
  return result;
}

const std::vector<realistic_cost::outcome>& realistic_cost::outcomes_of(const shape& from, std::uint32_t lost_in_grid) {
  auto& result = outcomes_[{from, lost_in_grid}];
  if (!result.empty())
    return result;
  const auto devices = options_.devices;
  const auto instances = (from.slots() + devices - 1) / devices;
  weighted ways;
  if (devices == 1 && count_losses(from, lost_in_grid, max_outcomes + 1) <= max_outcomes)
    enumerate_slots(from, lost_in_grid, ways);
  else if (devices > 1 && subsets(instances, lost_in_grid, max_outcomes) <= max_outcomes)
    enumerate_instances(from, devices, instances, lost_in_grid, ways);
  else
    draw_instances(from, devices, instances, lost_in_grid, max_outcomes, ways);
  double sum = 0;
  for (const auto& [left, weight] : ways)
    sum += weight;
  for (const auto& [left, weight] : ways)
    result.push_back({left, weight / sum});
  return result;
}

double realistic_cost::step_ms(const shape& x) const {
  const double rate = workload_.throughput(x);
  return rate > 0 ? 1000.0 * workload_.global_batch / rate : 0;
}

double realistic_cost::slice_bytes(const shape& x) {
  const auto& first = cut_of(x.depth).first_layer;
  double most = 0; // all wait for the rank that copies most
  for (std::uint32_t stage = 0; stage < x.depth; ++stage) {
    std::vector<double> copied(x.width, 0);
    for (auto layer = first[stage]; layer < first[stage + 1]; ++layer)
      most = std::max(most, copied[layer % x.width] += layer_bytes_[layer]);
  }
  return most;
}

double realistic_cost::snapshot_fraction(const shape& x) {
  const double ms = step_ms(x);
  if (!(ms > 0))
    return 0;
  const double slice = slice_bytes(x);
  const double copy_ms = kept_.copy_ms(slice, ms), trained_ms = kept_.period(slice, ms) * ms;
  return copy_ms > 0 ? copy_ms / (trained_ms + copy_ms) : 0;
}

// Parameters of all moves come first; the optimizer's tensors follow while the first step computes.
change_cost realistic_cost::moved(const shape& to, double busiest_bytes) const {
  const double early = busiest_bytes / (1 + workload_.optimizer_tensors);
  return moving_cost(options_.figures, early, busiest_bytes - early, step_ms(to));
}

// Nothing is moved while nobody trains, but until it is done the old configuration trains where the new one could. Who
// leaves goes on with it no longer than the notice.
std::optional<double> realistic_cost::fed_ms(const shape& from, const shape& to, bool leaving,
                                             double busiest_bytes) const {
  const double gradients = busiest_bytes / (1 + workload_.optimizer_tensors);
  const auto fed = feeding_cost(options_.figures, step_ms(from), step_ms(to), gradients, busiest_bytes);
  if (!fed || (leaving && fed->takes_ms > options_.notice_ms))
    return std::nullopt;
  return leaving ? 0 : fed->costs_ms;
}

change_cost realistic_cost::given(const shape& from, const shape& to, std::span<const std::uint32_t> left) {
  const bool all_left = std::all_of(left.begin(), left.end(), [&](auto x) { return x == from.width; });
  if (to.slots() == 0 || (all_left && from == to))
    return {};
  const bool interrupted = !all_left && !options_.announced;
  const auto lost = from.slots() - std::accumulate(left.begin(), left.end(), 0u);
  if (interrupted && std::find(left.begin(), left.end(), 0) != left.end()) {
    // The keepers' version is older than what the others hold, so all of it comes from them.
    auto result = start(to, false);
    result.replayed_ms = kept_.lag(slice_bytes(from), step_ms(from)) * step_ms(to); // that of the sender
    result.messages_ms += options_.figures.detect_ms + settle_ms(options_.figures, lost) + options_.figures.plan_ms;
    result.replayed_ms += 0.5 * step_ms(to);
    return result;
  }
  // Which slots stay, with most of what they need; all others, joiners and spares too, have nothing of it.
  const auto& target = cut_of(to.depth);
  std::vector<std::uint32_t> free(left.begin(), left.end());
  std::vector<std::uint32_t> wanted(to.depth, to.width);
  std::vector<double> sent(from.depth, 0); // by all holders of an old stage
  double busiest = 0;
  for (const auto& x : overlaps_of(from.depth, to.depth)) {
    const auto stay = std::min(free[x.from], wanted[x.to]);
    free[x.from] -= stay;
    wanted[x.to] -= stay;
    sent[x.from] += x.bytes * (to.width - stay);
    if (stay > 0)
      busiest = std::max(busiest, target.bytes[x.to] - x.bytes);
  }
  for (std::uint32_t stage = 0; stage < to.depth; ++stage)
    if (wanted[stage] > 0)
      busiest = std::max(busiest, target.bytes[stage]);
  for (std::uint32_t stage = 0; stage < from.depth; ++stage)
    busiest = std::max(busiest, sent[stage] / (options_.announced ? from.width : left[stage]));
  auto result = cost_of(options_.figures, interrupted ? std::optional(lost) : std::nullopt, to.slots(), 0);
  result += moved(to, busiest);
  if (interrupted) {
    result.messages_ms += options_.figures.detect_ms;
    result.replayed_ms = 0.5 * step_ms(to); // a loss comes at any moment of a step
  } else if (options_.feed) {
    if (const auto fed = fed_ms(from, to, !all_left, busiest); fed && *fed <= result.bytes_ms + result.late_ms) {
      result.late_ms = *fed;
      result.bytes_ms = 0;
    }
  }
  return result;
}

const change_cost& realistic_cost::mean_of(const shape& from, const shape& to, std::uint32_t lost_in_grid) {
  const auto [found, fresh] = means_.try_emplace({from, to, lost_in_grid});
  auto& result = found->second;
  if (!fresh)
    return result;
  for (const auto& x : outcomes_of(from, lost_in_grid))
    result += x.weight * given(from, to, x.left);
  return result;
}

change_cost realistic_cost::move(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) {
  if (to.slots() == 0)
    return {};
  if (from.slots() == 0)
    return start(to, false);
  const auto in_grid = (from.slots() + options_.devices - 1) / options_.devices;
  const auto p = hypergeometric(held, in_grid, lost);
  change_cost result;
  for (std::uint32_t k = 0; k < p.size(); ++k)
    if (p[k] > 0)
      result += p[k] * mean_of(from, to, k);
  return result;
}

change_cost realistic_cost::start(const shape& to, bool beginning) {
  if (to.slots() == 0)
    return {};
  // At the beginning every node makes version 0 itself.
  const auto& bytes = cut_of(to.depth).bytes;
  const double from_keepers = beginning ? 0 : kept_.sent_bytes(to.width);
  const double received = beginning ? 0 : *std::max_element(bytes.begin(), bytes.end());
  auto result = cost_of(options_.figures, std::nullopt, to.slots(), 0);
  result += moved(to, std::max(from_keepers, received));
  result.messages_ms += options_.figures.prepare_ms;
  result.replayed_ms = beginning ? 0 : kept_.lag(slice_bytes(to), step_ms(to)) * step_ms(to);
  return result;
}

double realistic_cost::move_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) {
  return move(from, to, held, lost).total_ms();
}

double realistic_cost::start_ms(const shape& to, bool beginning) {
  return start(to, beginning).total_ms();
}

double realistic_cost::redirect_ms(const shape&) {
  return settle_ms(options_.figures, 1) + options_.figures.plan_ms + options_.figures.prepare_ms;
}

} // namespace parcae
