#include "tests/actors/conductor/carried_executors.hpp"

#include <algorithm>
#include <tuple>
#include <variant>

namespace parcae {

namespace {

job_generation id_of(const prepare& x) {
  return {x.job, x.next};
}

} // namespace

std::uint32_t carried_executors::worker::place_in(const placement& x) const {
  return static_cast<std::uint32_t>(std::ranges::find(x.participants, self, &participant::slot) -
                                    x.participants.begin());
}

std::pair<std::uint32_t, std::uint32_t> carried_executors::worker::stage() const {
  const auto& grid = trained->target;
  const auto number = grid.stage_of(place_in(grid));
  return {grid.first_layer[number], grid.first_layer[number + 1]};
}

void carried_executors::add(const slot_id& x, bool keeper) {
  if (keeper)
    keepers_.try_emplace(x, x);
  else
    workers_.try_emplace(x, x);
}

void carried_executors::lose(const slot_id& x, bool noticed) {
  const auto known = workers_.find(x);
  if (known == workers_.end())
    return;
  auto& w = known->second;
  w.away = true;
  if (noticed && w.trained && w.machine.trains()) {
    break_off(id_of(*w.trained), w);
    fail(w);
  }
}

void carried_executors::come_back(const slot_id& x) {
  if (const auto known = workers_.find(x); known != workers_.end())
    known->second.away = false;
  unsettled_ = true;
}

inventory carried_executors::held(const slot_id& x) const {
  const auto k = keepers_.find(x);
  return k == keepers_.end() ? workers_.at(x).machine.held() : k->second.machine->shards().held();
}

void carried_executors::tell(const slot_id& to, const command& what) {
  if (const auto known = workers_.find(to); known != workers_.end()) {
    auto& w = known->second;
    auto own = narrowed<worker_command>(what);
    if (!own)
      return object(to_string(to) + " is told what only keepers do");
    if (const auto* l = std::get_if<load>(&*own))
      return report_to(to, l->specification.serves() ? loaded{l->job, {}, {}, {16, {4, 16, 48}}}
                                                     : loaded{l->job, "digest"});
    if (auto* p = std::get_if<prepare>(&*own))
      return does(w, w.machine.hear(std::move(*p)));
    does(w, w.machine.hear(*own));
    does(w, w.machine.take(*own));
    return;
  }
  auto& k = keepers_.at(to);
  const auto own = narrowed<keeper_command>(what);
  if (!own)
    return object(to_string(to) + " is told what only workers do");
  if (const auto* g = std::get_if<guard>(&*own))
    k.guarded = *g;
  if (std::holds_alternative<replicate>(*own)) // what has arrived there may be asked for again
    std::erase_if(k.copies, [&](const auto& x) {
      const bool over = x.second.use_count() == 1;
      if (over)
        does(k, k.machine->copied(x.first));
      return over;
    });
  does(k, k.machine->take(*own));
}

void carried_executors::does(worker& w, const worker_machine::effects& all) {
  for (const auto& x : all)
    std::visit([&](const auto& y) { do_one(w, y); }, x);
}

void carried_executors::does(keeper& k, const keeper_machine::effects& all) {
  for (const auto& x : all)
    std::visit([&](const auto& y) { do_one(k, y); }, x);
}

// A worker's part in a generation

void carried_executors::do_one(worker& w, const worker_effects::connect& x) {
  const auto checksum = checksum_of(x.plan);
  auto plan = plans_[checksum].lock();
  if (!plan)
    plans_[checksum] = plan = std::make_shared<const prepare>(x.plan);
  w.parts[id_of(*plan)] = plan;
  does(w, w.machine.connected(id_of(*plan), checksum));
}

void carried_executors::do_one(worker& w, const worker_effects::cut& x) {
  break_off(x.of, w);
}

void carried_executors::do_one(worker& w, const worker_effects::drop& x) {
  w.parts.erase(x.of);
  if (w.trained && id_of(*w.trained) == x.of)
    w.trained = nullptr;
}

void carried_executors::do_one(worker& w, const worker_effects::keep_followed& x) {
  auto held = w.machine.held();
  const auto& plan = *w.parts.at(x.of);
  for (const auto& move : plan.moves)
    if (followed && move.destination == w.place_in(plan.target)) {
      std::erase_if(held, [&](const auto& y) { return y.layer == move.layer; });
      held.push_back({move.layer, *followed});
    }
  std::ranges::sort(held);
  does(w, w.machine.kept_followed(x.of, std::move(held)));
}

void carried_executors::do_one(worker& w, const worker_effects::move& x) {
  const auto& plan = *w.parts.at(x.of);
  const auto self = w.place_in(plan.target);
  auto held = w.machine.held();
  const auto holds = [&](std::uint32_t layer) { return std::ranges::count(held, layer_version{layer, x.at}) > 0; };
  const auto name = to_string(w.self);
  for (const auto& move : plan.moves)
    if (move.source == self && !holds(move.layer))
      object(name + " shall send layer " + std::to_string(move.layer) + " which it does not hold");
  if (self < plan.target.ranks()) {
    for (const auto layer : lacking_layers(plan, self, held, x.at))
      if (x.at != version{})
        object(name + " needs layer " + std::to_string(layer) + " and is sent nothing");
    const auto stage = plan.target.stage_of(self);
    for (auto layer = plan.target.first_layer[stage]; layer < plan.target.first_layer[stage + 1]; ++layer) {
      std::erase_if(held, [&](const auto& y) { return y.layer == layer; });
      held.push_back({layer, x.at});
    }
    std::ranges::sort(held);
  }
  does(w, w.machine.moved(x.of, std::move(held)));
}

void carried_executors::do_one(worker& w, const worker_effects::begin& x) {
  w.trained = w.parts.at(x.of);
  w.state = {};
  w.state.at = x.at;
  w.state.is_final = x.at.steps >= w.trained->specification.steps;
  w.asks = {.due = x.snapshot};
  unsettled_ = true;
  does(w, w.machine.begun(w.state));
}

void carried_executors::do_one(worker& w, const worker_effects::ask_to_stop& x) {
  w.asks |= {.stop = true, .snapshot = x.snapshot};
  unsettled_ = true;
}

// Steps

std::vector<carried_executors::worker*> carried_executors::exchange() {
  std::map<generation, std::vector<worker*>> all;
  for (auto& [id, w] : workers_)
    if (w.trains() && !w.state.is_final && !w.trained->specification.serves())
      all[w.trained->next].push_back(&w);
  std::vector<worker*> result;
  for (const auto& [g, ranks] : all) {
    if (ranks.size() < ranks.front()->trained->target.ranks())
      continue;
    wishes all;
    for (const auto* w : ranks)
      all |= w->asks;
    for (auto* w : ranks) {
      w->asks = all;
      result.push_back(w);
    }
  }
  return result;
}

void carried_executors::apply(worker& w, const commit_result& result) {
  w.state.result = result;
  w.state.at = {w.state.at.steps + 1, w.trained->next};
  w.state.complete = no_step;
  w.state.is_final = w.state.at.steps >= w.trained->specification.steps;
  unsettled_ |= w.state.is_final;
}

void carried_executors::commit(worker& w, double loss) {
  const auto step = w.state.at.steps;
  const bool sent = goes_to_keepers(w.asks, step, w.trained->specification);
  const commit_result result{.step = step, .loss = loss, .stop = w.asks.stop, .snapshot = sent};
  if (sent)
    w.asks.snapshot = w.asks.due = false;
  apply(w, result);
  does(w, w.machine.committed(w.state));
}

void carried_executors::step(double loss) {
  for (auto* w : exchange())
    commit(*w, loss);
}

void carried_executors::serve() {
  for (auto& [id, w] : workers_)
    if (w.trains())
      report_to(id, served{w.trained->next});
}

bool carried_executors::half_step(const std::function<bool()>& applies) {
  const auto all = exchange();
  quiet_ = true;
  for (auto* w : all) {
    w->state.complete = w->state.at.steps;
    if (applies())
      commit(*w, 0);
  }
  quiet_ = false;
  for (auto* w : all)
    fail(*w);
  return !all.empty();
}

void carried_executors::settle() {
  if (!std::exchange(unsettled_, false))
    return;
  for (auto& [id, w] : workers_) // each pipeline by itself
    if (w.trains() && w.trained->specification.serves() && w.asks.stop)
      does(w, w.machine.drained(w.state));
  quiet_ = true;
  for (auto* w : exchange())
    if (w->asks.stop) {
      w->state.result.step = w->state.at.steps - 1;
      w->state.result.stop = true;
      w->state.result.snapshot = w->asks.snapshot || w->asks.due;
      w->asks.snapshot = w->asks.due = false;
      does(*w, w->machine.committed(w->state));
    }
  quiet_ = false;
  for (auto& [id, w] : workers_)
    if (w.trains() && w.state.is_final)
      does(w, w.machine.no_step_left(w.state));
}

void carried_executors::break_off(const job_generation& of, const worker& who) {
  const auto concerns = [&](const worker& w) { // pipelines that serve have nothing to do with each other
    const auto& x = *w.trained;
    return !x.specification.serves() ||
           x.target.pipeline_of(w.place_in(x.target)) == x.target.pipeline_of(who.place_in(x.target));
  };
  for (auto& [id, w] : workers_)
    if (&w != &who && w.trained && id_of(*w.trained) == of && w.machine.trains() && concerns(w))
      fail(w);
}

void carried_executors::fail(worker& w) {
  does(w, w.machine.step_failed(w.state, failure::communication, "closed"));
}

void carried_executors::do_one(worker& w, const worker_effects::apply& x) {
  apply(w, x.result);
  does(w, w.machine.applied(w.state));
}

void carried_executors::do_one(worker& w, const worker_effects::report_progress&) {
  if (quiet_)
    return;
  progress x{w.trained->next, w.state.at, w.state.result, 100, {}};
  if (on_progress)
    std::apply([&](auto first, auto last) { on_progress(x, first, last); }, w.stage());
  report_to(w.self, std::move(x));
}

// Keepers

void carried_executors::do_one(worker& w, const worker_effects::use_keepers& x) {
  const bool goes_on = is_repeated(w.feed, x.what);
  w.feed = x.what;
  if (goes_on)
    return;
  if (w.stream)
    *w.stream = false;
  w.stream = std::make_shared<bool>(true);
}

void carried_executors::do_one(worker& w, const worker_effects::send_snapshot& x) {
  const auto& grid = w.trained->target;
  const auto self = w.place_in(grid);
  const auto [first, last] = w.stage();
  for (const auto& share : w.feed.keepers)
    for (auto layer = first; snapshot_to && layer < last; ++layer)
      if (sends_to(share, grid, self, layer, x.whole))
        snapshot_to({w.self, share.keeper.slot, {layer, w.state.at}, x.result, w.stream});
}

void carried_executors::do_one(keeper& k, const keeper_effects::copy& x) {
  const auto wanted = k.copies.emplace_back(x.what, std::make_shared<bool>(true)).second;
  for (const auto& shard : x.sent->shards)
    if (snapshot_to && shard->layer != losses_layer)
      snapshot_to({k.self, x.what.to.slot, {shard->layer, shard->at}, x.sent->result, wanted});
}

void carried_executors::do_one(keeper& k, const keeper_effects::end_copy& x) {
  std::erase_if(k.copies, [&](const auto& y) { return y.first == x.what && !(*y.second = false); });
}

void carried_executors::arrive(const slot_id& keeper, const layer_version& x, const commit_result& made_by) {
  auto& k = keepers_.at(keeper);
  const std::vector<std::byte> bits{static_cast<std::byte>(x.layer)};
  does(k,
       k.machine->arrived(job, std::make_shared<const shard_bytes>(shard_bytes{x.layer, x.at, {bits, bits}}), made_by));
}

void carried_executors::caught_up(const slot_id& keeper) {
  auto& k = keepers_.at(keeper);
  does(k, k.machine->caught_up());
}

void carried_executors::was_read(const slot_id& keeper, const restored& x) {
  auto& k = keepers_.at(keeper);
  does(k, k.machine->read(x));
}

void carried_executors::hold(const slot_id& keeper, const inventory& x) {
  auto& k = keepers_.at(keeper);
  k.machine = std::make_unique<keeper_machine>(k.self, true);
  k.copies.clear();
  does(k, k.machine->take(k.guarded));
  for (const auto& each : x)
    arrive(keeper, each, {.step = each.at.steps - 1});
}

} // namespace parcae
