#include "planner/serving/service_simulator.hpp"

#include "planner/serving/slot_places.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <cmath>

namespace parcae::serving {

namespace {

constexpr double minute_ms = 60'000;
constexpr std::size_t measured = 100;            // requests by whose gaps and lengths the service's policy goes
constexpr double first_calm_ms = 10 * minute_ms; // until the fleet changes, before it has

// What a policy goes by.
struct service_scene {
  double now_ms = 0;
  std::uint32_t slots = 0;
  service_load load;
  service_shape present;
  double calm_ms = 0;
  double stall_ms = 0; // of the last change
};

struct shape_choice {
  service_shape shape;
  std::string why;
};

shape_choice spotserve_shape(const service_world& world, const service_scene& scene) {
  const auto found = spotserve_choose(*world.profile, scene.slots,
                                      {world.least_slots, world.max_batch, world.asked_per_s, world.new_tokens});
  if (!found)
    return {{}, "nothing fits " + counted(scene.slots, "slot")};
  const auto& form = found->form;
  const service_shape shape{found->width, form.depth, form.degree, form.prompt_parts, form.token_parts};
  return {shape, to_string(shape) + ": a batch of " + std::to_string(form.batch) + " takes " +
                     text_of_ms(found->total_ms) +
                     (found->requests_per_s < world.asked_per_s ? "; none does what is asked for" : "")};
}

class simulation {
public:
  simulation(const service_world& world, service_policy policy, batch_kind kind) :
      world_(world), policy_(policy), places_(world.model.layers, world.seed),
      planner_(world.model, {world.least_slots, world.limits, 200, world.seed}) {
    for (const auto& x : world.arrivals)
      if (x.ms < world.end_ms)
        result_.requests.push_back({x});
    work_ = kind == batch_kind::continuous ? continuous_batches(world_.model, world_.limits, result_.requests)
                                           : static_batches(*world_.profile, world_.max_batch, result_.requests);
  }

  service_result run() {
    for (;;) {
      const double now = next_ms();
      if (now == nothing_due)
        break;
      pay(now);
      now_ms_ = now;
      work_->advance(now);
      while (next_arrival_ < result_.requests.size() && result_.requests[next_arrival_].from.ms <= now)
        queue_.push_back(static_cast<std::uint32_t>(next_arrival_++));
      fleet_changes();
      plan();
      if (wanted_ && resume_ms_ == nothing_due && work_->stop(now))
        resume_ms_ = now + move();
      if (resume_ms_ <= now)
        resume();
      if (!wanted_)
        work_->fill(queue_, now);
    }
    return finish();
  }

private:
  bool is_over() const {
    return next_arrival_ == result_.requests.size() && queue_.empty() && work_->running() == 0 &&
           now_ms_ >= world_.end_ms;
  }

  double next_ms() const {
    if (is_over())
      return nothing_due;
    double result = std::min(work_->next_ms(), resume_ms_);
    if (next_arrival_ < result_.requests.size())
      result = std::min(result, result_.requests[next_arrival_].from.ms);
    if (next_row_ < world_.fleet.size())
      result = std::min(result, world_.fleet[next_row_].seconds * 1000);
    if (now_ms_ < world_.end_ms)
      result = std::min({result, world_.end_ms, policy_ == service_policy::service ? next_plan_ms_ : nothing_due});
    return result;
  }

  void pay(double now) { result_.instance_ms += instances_ * (now - now_ms_); }

  void fleet_changes() {
    for (; next_row_ < world_.fleet.size() && world_.fleet[next_row_].seconds * 1000 <= now_ms_; ++next_row_) {
      const auto count = world_.fleet[next_row_].available;
      if (count == instances_)
        continue;
      if (next_row_ > 0) {
        ++fleet_changes_;
        last_fleet_change_ms_ = now_ms_;
      }
      instances_ = count;
      places_.resize(count, world_.slots_each);
      plan_now_ = true;
    }
  }

  service_load load() const {
    service_load result{world_.asked_per_s, {}};
    const auto from = next_arrival_ - std::min(next_arrival_, measured);
    for (auto i = from; i < next_arrival_; ++i)
      result.lengths.push_back(result_.requests[i].from.lengths);
    if (next_arrival_ >= measured)
      result.per_s =
          (measured - 1) * 1000 / (result_.requests[next_arrival_ - 1].from.ms - result_.requests[from].from.ms);
    if (result.lengths.empty())
      result.lengths.push_back(result_.requests.empty() ? request_lengths{} : result_.requests[0].from.lengths);
    return result;
  }

  shape_choice choose() {
    const auto slots = static_cast<std::uint32_t>(places_.slots());
    const double calm = fleet_changes_ == 0 ? first_calm_ms : last_fleet_change_ms_ / fleet_changes_;
    const service_scene scene{now_ms_, slots, {}, shape_, calm, stall_ms_};
    if (policy_ == service_policy::spotserve)
      return spotserve_shape(world_, scene);
    const auto found = planner_.choose(slots, load(), shape_, {stall_ms_, calm});
    return {found.best.shape, found.why};
  }

  // Chooses where something is new, and what the choice needs.
  void plan() {
    const bool due = policy_ == service_policy::service && now_ms_ >= next_plan_ms_ && now_ms_ < world_.end_ms;
    if (!plan_now_ && (!due || wanted_))
      return;
    next_plan_ms_ = now_ms_ + minute_ms;
    plan_now_ = false;
    auto choice = choose();
    if (choice.shape == shape_ && !places_.is_hit() && !wanted_)
      return;
    if (!wanted_)
      stopped_ms_ = now_ms_;
    wanted_ = std::move(choice);
    if (resume_ms_ != nothing_due)
      resume_ms_ = now_ms_ + move(); // as the change before was not made
  }

  // Who goes on with which requests; how long nobody computes for it.
  double move() {
    const auto cached = work_->cached();
    auto places = places_;
    const auto plan = places.change(wanted_->shape, cached);
    heirs_ = plan.heirs;
    const auto& costs = world_.changes;
    return costs.fixed_ms +
           (costs.link_bytes_per_ms > 0
                ? plan.transfer_ms(world_.model.cache_bytes / wanted_->shape.degree, costs.link_bytes_per_ms)
                : 0);
  }

  void resume() {
    places_.change(wanted_->shape, work_->cached());
    work_->change(wanted_->shape, heirs_, queue_, now_ms_);
    shape_ = wanted_->shape;
    stall_ms_ = now_ms_ - stopped_ms_;
    result_.steps.push_back(
        {stopped_ms_, static_cast<std::uint32_t>(places_.slots()), shape_, stall_ms_, std::move(wanted_->why)});
    wanted_.reset();
    resume_ms_ = nothing_due;
  }

  service_result finish() {
    result_.end_ms = now_ms_;
    for (const auto& x : result_.requests) {
      result_.tokens += x.tokens;
      result_.computed += x.computed;
      result_.needed += x.tokens > 0 ? known_positions(x) - 1 : 0;
      result_.unserved += x.end_ms < 0 ? 1 : 0;
    }
    return std::move(result_);
  }

  const service_world& world_;
  const service_policy policy_;
  slot_places places_;
  service_planner planner_;
  service_result result_;
  std::unique_ptr<batches> work_;
  request_queue queue_;
  double now_ms_ = 0;
  std::size_t next_arrival_ = 0, next_row_ = 0;
  std::uint32_t instances_ = 0, fleet_changes_ = 0;
  double last_fleet_change_ms_ = 0, next_plan_ms_ = 0;
  bool plan_now_ = false;
  service_shape shape_;
  std::optional<shape_choice> wanted_; // a change is under way
  std::vector<std::optional<std::uint32_t>> heirs_;
  double stopped_ms_ = 0, resume_ms_ = nothing_due, stall_ms_ = 0;
};

} // namespace

std::vector<double> service_result::latencies_ms() const {
  std::vector<double> result;
  for (const auto& x : requests)
    if (x.end_ms >= 0)
      result.push_back(x.end_ms - x.from.ms);
  return result;
}

std::vector<double> service_result::first_ms() const {
  std::vector<double> result;
  for (const auto& x : requests)
    if (x.first_ms >= 0)
      result.push_back(x.first_ms - x.from.ms);
  return result;
}

service_result simulate_service(const service_world& world, service_policy policy, batch_kind kind) {
  return simulation(world, policy, kind).run();
}

} // namespace parcae::serving
