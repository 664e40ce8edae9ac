#include "planner/simulation/simulator.hpp"

#include <algorithm>

namespace parcae {

std::uint32_t table_instances(const profile& workload, const fleet_history& history, std::uint32_t devices) {
  std::uint32_t slots = 0, instances = 0;
  for (const auto& [pair, rate] : workload.samples_per_s)
    slots = std::max(slots, pair.slots());
  for (const auto& x : history)
    instances = std::max(instances, x.available);
  return std::max(instances, (slots + devices - 1) / devices);
}

simulator::account::account(const profile& workload, const realistic_options& costs, const fleet_history& history) :
    real_time(std::make_unique<realistic_cost>(workload, costs)),
    table(workload, *real_time, table_instances(workload, history, costs.devices)) {}

simulator::simulator(const profile& workload, published_cost& costs, const fleet_history& history,
                     simulation_options options) :
    workload_(workload),
    account_(workload, costs, history), reload_(&costs), history_(history), options_(std::move(options)) {
  begin();
}

simulator::simulator(const profile& workload, const realistic_options& costs, const fleet_history& history,
                     simulation_options options) :
    workload_(workload),
    account_(workload, costs, history), history_(history), options_(std::move(options)) {
  if (!costs.announced) {
    auto announced = costs;
    announced.announced = true;
    announced_ = std::make_unique<account>(workload, announced, history);
  }
  begin();
}

void simulator::begin() {
  if (options_.policy == policy::liveput && options_.forecast != "oracle") {
    forecast_ = make_method(options_.forecast);
    point_ = options_.forecast == "last";
  }
}

void simulator::losses::add(const fleet_interval& x) {
  all += x.lost;
  announced += x.announced == x.lost ? x.lost : 0;
}

simulator::account& simulator::account_for(const losses& x) {
  return announced_ && x.all > 0 && 2 * x.announced >= x.all ? *announced_ : account_;
}

simulator::account& simulator::next_account() {
  losses next;
  next.add(history_[next_]);
  return account_for(next);
}

double simulator::seconds(std::size_t interval) const {
  if (!account_.real_time || interval + 1 == history_.size())
    return interval_s;
  return history_[interval + 1].seconds - history_[interval].seconds;
}

void simulator::observe_up_to(std::size_t count) {
  for (; observed_ < std::min(count, history_.size()); ++observed_)
    forecast_->observe(history_[observed_]);
}

std::uint32_t simulator::plan(std::span<const fleet_change> known, const availability_lattice& future,
                              account& expected) {
  auto& next = next_account();
  liveput_options options{.memory = &expected.memory};
  if (&next != &expected && state_.at != move_table::idle)
    options.first_ms = [&](std::uint32_t target) {
      return next.table.move_ms(state_.at, target, held_, history_[next_].lost);
    };
  return plan_liveput(expected.table, state_, held_, known, future, options)[0].target;
}

std::uint32_t simulator::plan_with_truth() {
  if (next_ < whole_plan_.size())
    return whole_plan_[next_];
  const auto count = std::min<std::size_t>(options_.look_ahead, history_.size() - next_);
  std::vector<fleet_change> future;
  losses to_come;
  auto available = held_;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& event = history_[next_ + i];
    future.push_back({event.joined, event.lost});
    to_come.add(event);
    available += event.joined - event.lost;
  }
  // All pairs are too many: the fastest for each size. In real time training also goes on behind the look-ahead. Where
  // only some losses are announced, the next one has its own cost, and later ones that of most of them.
  const bool mixed = announced_ && to_come.announced > 0 && to_come.announced < to_come.all;
  auto& expected = account_for(to_come);
  if (account_.table.shapes().size() > move_table::dense || mixed ||
      (account_.real_time && next_ + count < history_.size()))
    return plan(future, single_path(available, {}), expected);
  auto plan = plan_known(expected.table, state_, held_, future);
  const auto first = plan[0];
  if (next_ == 0 && count == history_.size())
    whole_plan_ = std::move(plan);
  return first;
}

std::uint32_t simulator::plan_with_forecast() {
  const auto left = std::min<std::size_t>(options_.look_ahead, history_.size() - next_);
  // The first interval is known to all, and in real time a move follows its event.
  const auto known_count =
      std::min<std::size_t>(left, std::max<std::uint32_t>(options_.notice, next_ == 0 || account_.real_time ? 1 : 0));
  observe_up_to(next_ + known_count);
  std::vector<fleet_change> known;
  for (std::size_t i = 0; i < known_count; ++i)
    known.push_back({history_[next_ + i].joined, history_[next_ + i].lost});
  if (!point_ || account_.real_time || account_.table.shapes().size() > move_table::dense)
    return plan(known, forecast_->forecast(left - known_count, planning_detail), account_for(so_far_));
  for (const auto& stage : forecast_->forecast(left - known_count, planning_detail).stages) {
    if (known.size() == left)
      break;
    const auto& step = stage[0].branches;
    known.push_back({step.empty() ? 0 : step[0].joined, step.empty() ? 0 : step[0].lost});
  }
  return plan_known(account_.table, state_, held_, known)[0];
}

void simulator::decide() {
  so_far_.add(history_[next_]);
  if (options_.policy == policy::liveput)
    target_ = forecast_ ? plan_with_forecast() : plan_with_truth();
  else if (const auto& fastest = account_.table.fastest(history_[next_].available, 1); !fastest.empty())
    target_ = fastest[0];
  else
    target_ = move_table::idle;
}

// Restarts from a checkpoint at every event. An event while a restart is going on discards what is left of it and
// charges a second one.
simulated_interval simulator::reactive() {
  const auto& event = history_[next_];
  const auto best = workload_.fastest(event.available * reload_->devices());
  simulated_interval result{best, 0, 0, false};
  if (best.width == 0) {
    left_ms_ = 0;
    return result;
  }
  double remaining_ms = left_ms_;
  if (event.joined > 0 || event.lost > 0 || !state_.begun) {
    const auto kind = event.joined > 0 || !state_.begun ? change::add : change::remove;
    remaining_ms = reload_->reload_ms(best, kind, state_.begun) + (left_ms_ > 0 ? reload_->restart_ms(best, kind) : 0);
    result.cost_ms = remaining_ms;
    result.migrated = true;
    state_.begun = true;
  }
  result.samples = workload_.throughput(best) * std::max(0.0, interval_s - remaining_ms / 1000);
  left_ms_ = std::max(0.0, remaining_ms - 1000 * interval_s);
  return result;
}

simulated_interval simulator::migrate() {
  const auto& event = history_[next_];
  const auto before = state_;
  auto& [costs, table, memory] = next_account();
  const auto outcome =
      carry_out(table, state_, table.clipped(target_, event.available), held_, event.lost, seconds(next_));
  state_ = outcome.next;
  simulated_interval result{state_.at == move_table::idle ? shape{} : table.shapes()[state_.at], outcome.samples,
                            outcome.cost_ms, outcome.cost_ms > 0};
  if (costs) {
    if (!before.migrating || outcome.anew || state_.at == move_table::idle)
      unpaid_ = {};
    const auto start = costs->start(result.used, !before.begun);
    const auto change =
        before.at == move_table::idle ? start : costs->move(table.shapes()[before.at], result.used, held_, event.lost);
    unpaid_ += outcome.anew && start.total_ms() > change.total_ms() ? start : change;
    account_for_lost(result.used, workload_.fastest(event.available * table.costs().devices()));
    const double copying = result.samples * costs->snapshot_fraction(result.used);
    result.samples -= copying;
    lost_.snapshots += copying;
  }
  return result;
}

void simulator::account_for_lost(const shape& used, const shape& fastest) {
  const double rate = workload_.throughput(used), length_s = seconds(next_);
  lost_.remainder += (workload_.throughput(fastest) - rate) * length_s;
  double left_ms = 1000 * length_s;
  const auto pay = [&](double& cost_ms, double& lost) {
    const double ms = std::min(left_ms, cost_ms);
    left_ms -= ms;
    cost_ms -= ms;
    lost += rate * ms / 1000;
  };
  pay(unpaid_.messages_ms, lost_.messages);
  pay(unpaid_.bytes_ms, lost_.bytes);
  pay(unpaid_.late_ms, lost_.bytes);
  pay(unpaid_.replayed_ms, lost_.replayed);
}

void simulator::advance() {
  const auto& event = history_[next_];
  const auto best = workload_.fastest(event.available * account_.table.costs().devices());
  const double most = seconds(next_) * workload_.throughput(best);
  simulated_interval result{best, most, 0, false};
  if (options_.policy == policy::throughput && reload_)
    result = reactive();
  else if (options_.policy != policy::ideal)
    result = migrate();
  held_ = event.available;
  ++next_;
  ideal_ += most;
  samples_ += result.samples;
  migrations_ += result.migrated ? 1 : 0;
  intervals_.push_back(result);
}

} // namespace parcae
