#include "tests/simulation/simulated_worker.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace parcae::simulation {

simulated_worker::simulated_worker(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                                   std::function<void(report)> report_to) :
    data_end(std::move(p), slot),
    around_(around), report_to_(std::move(report_to)), machine_(slot) {
  if (around_.spoil)
    around_.spoil(machine_);
  around_.plane.add(*this);
}

simulated_worker::~simulated_worker() {
  *alive_ = false;
  if (around_.plane.remove(*this))
    around_.sees.gone(slot);
}

// Things happen on its own threads.
void simulated_worker::later(nanoseconds delay, void (simulated_worker::*what)()) {
  around_.time.after(process, delay, [this, what, alive = alive_] {
    if (*alive)
      (this->*what)();
  });
}

inventory simulated_worker::held() const {
  inventory result;
  for (const auto& [layer, x] : store_)
    result.push_back({layer, x.at});
  return result;
}

void simulated_worker::store_changed() {
  around_.sees.holds(slot, held());
}

simulated_worker::part* simulated_worker::find(generation g) {
  const auto known = std::ranges::find(parts_, g, [](const auto& x) { return x.first.number; });
  return known == parts_.end() ? nullptr : &known->second;
}

void simulated_worker::want_snapshot() {
  if (auto* x = current())
    x->next.due = true;
}

bool simulated_worker::must_wait(const worker_command& x) const {
  const auto g = generation_of(x); // ABORT ends what is waited for
  return !std::holds_alternative<prepare>(x) && std::ranges::any_of(parts_, [&](const auto& part) {
    const bool waits = part.second.transfers_at || (in_step_ && current_ == part.first);
    return waits && part.first.number != g;
  });
}

void simulated_worker::obey(worker_command x) {
  around_.sees.given(slot, widened<command>(x), around_.time.now(), !must_wait(x));
  if (auto* p = std::get_if<prepare>(&x)) {
    newest_ = std::max(newest_, p->next);
    return do_all(machine_.hear(std::move(*p)));
  }
  if (const auto* l = std::get_if<load>(&x)) {
    around_.time.after(process, around_.time.chance().between(1ms, 40ms), [this, what = *l, alive = alive_] {
      if (*alive)
        answer_load(what);
    });
    return;
  }
  do_all(machine_.hear(x));
  queue_.push_back(std::move(x));
  go_on();
}

void simulated_worker::go_on() {
  if (busy_ || in_step_ || (queue_.empty() && (!machine_.trains() || (serves() && !ends_service()))))
    return;
  busy_ = true;
  later(around_.time.chance().between(0ms, around_.wake), &simulated_worker::do_next);
}

void simulated_worker::do_next() {
  busy_ = false;
  if (in_step_)
    return;
  if (!queue_.empty()) {
    const auto x = std::move(queue_.front());
    queue_.pop_front();
    const auto open = open_step();
    do_all(machine_.take(x));
    look_at(x, open);
  } else if (machine_.trains()) {
    serves() ? end_service() : train();
  }
  go_on();
}

std::uint64_t simulated_worker::open_step() const {
  const auto* x = current_ ? &parts_.at(*current_).state : nullptr;
  return x && x->complete == x->at.steps ? x->complete : no_step;
}

// What the rules promise of a command that was taken.
void simulated_worker::look_at(const worker_command& x, std::uint64_t open) {
  const auto wrong = [&](const std::string& what) { around_.sees.object(to_string(slot) + " " + what); };
  if (!busy_ && machine_.held() != held())
    wrong("holds other shards than its rules know of");
  if (const auto* d = std::get_if<decide>(&x); d && open != no_step && d->result.step == open && current() &&
                                               current_->number == d->current && current()->state.at.steps == open)
    wrong("is told to apply step " + std::to_string(open) + ", and does not");
  if (const auto* r = std::get_if<release>(&x); r && r->current >= newest_)
    for (const auto& [of, part] : parts_)
      if (current_ == of ? of.number < r->current : of.number == r->current && !part.is_rank())
        wrong("has a part in generation " + std::to_string(of.number.value) + ", which nobody needs");
  const auto* a = std::get_if<activate>(&x);
  const auto* next = a ? find(a->next) : nullptr;
  const auto* newest = std::get_if<release>(&x);
  if (const auto g = newest ? newest->current
                     : next ? a->next
                            : generation{};
      machine_.trains() && current_->number < g && g >= newest_)
    wrong("trains generation " + std::to_string(current_->number.value) + ", and generation " +
          std::to_string(g.value) + " has its state");
  if (next && !next->transfers_at && machine_.phase_of(next->id()) == worker_phase::moving)
    wrong("is told ACTIVATE, and moves nothing");
  if (const auto* b = std::get_if<abort_generation>(&x); b && b->current == kept_of_ && !b->keeps_followed && !current_)
    for (const auto& each : std::exchange(kept_, {}))
      if (const auto known = store_.find(each.layer); known != store_.end() && known->second.at == each.at)
        wrong("holds layer " + std::to_string(each.layer) + ", which went ahead, and nobody needs it");
  if (std::holds_alternative<forget>(x) && !parts_.empty())
    wrong("has a part in a generation of a job that is over");
  if (const auto* p = std::get_if<protect>(&x); p && p->now && !p->keepers.empty() && machine_.trains())
    snapshot_by_ = current()->state.at.steps + 1;
}

void simulated_worker::look_at(const worker_report& x) {
  auto* it = current();
  if (!it)
    return;
  const auto& state = it->state;
  if (const auto* s = std::get_if<stopped>(&x);
      s && s->current == it->what.next && !std::exchange(it->has_stopped, true) && s->is_final && is_unsent())
    around_.sees.object(to_string(slot) + " stops at the last version, and does not send it to the keepers");
  if (const auto* d = std::get_if<decided>(&x); d && it->what.next == d->current && state.complete != no_step)
    around_.sees.object(to_string(slot) + " says DECIDED, and step " + std::to_string(state.complete) + " is open");
  if (const auto* a = std::get_if<aborted>(&x);
      a && it->what.next == a->current && a->at == state.at && a->complete != state.complete)
    around_.sees.object(to_string(slot) + " says ABORTED, and not that step " + std::to_string(state.complete) +
                        " is open");
}

// Effects

void simulated_worker::do_all(const worker_machine::effects& all) {
  for (const auto& x : all)
    std::visit([this](const auto& y) { do_one(y); }, x);
}

void simulated_worker::do_one(const worker_effects::say& x) {
  auto said = widened<report>(x.what);
  around_.sees.said(slot, said, around_.time.now());
  look_at(x.what);
  report_to_(std::move(said));
}

void simulated_worker::do_one(const worker_effects::connect& x) {
  const auto g = x.plan.next;
  auto& it = parts_.emplace(job_generation{x.plan.job, g}, part(x.plan)).first->second;
  const auto& all = it.what.target.participants;
  while (all[it.self].slot != slot)
    ++it.self;
  if (const auto& lacks = around_.lacks; lacks && it.is_rank() && (lacks->of_data || lacks->of_memory))
    return around_.time.after(process, around_.time.chance().between(1ms, 40ms), [this, g, alive = alive_] {
      if (*alive)
        cannot_prepare(g);
    });
  around_.plane.connect(it.what, *this);
}

void simulated_worker::do_one(const worker_effects::cut& x) {
  const auto known = parts_.find(x.of);
  if (known == parts_.end())
    return;
  auto& it = known->second;
  around_.plane.close(it.what.next, *this);
  if (it.transfers_at) { // whoever waits for it goes on
    it.transfers_at.reset();
    busy_ = false;
    go_on();
  }
  if (current() == &it && std::exchange(it.begins_whole, false)) {
    busy_ = false;
    machine_.interrupted(it.state);
    go_on();
  }
  if (current() == &it && in_step_ && !busy_) { // what has begun to be applied is applied
    in_step_ = false;
    machine_.interrupted(it.state);
    go_on();
  }
}

void simulated_worker::do_one(const worker_effects::drop& x) {
  if (const auto known = parts_.find(x.of); known != parts_.end())
    around_.plane.close(known->second.what.next, *this);
  if (current_ == x.of)
    current_.reset();
  parts_.erase(x.of);
}

void simulated_worker::do_one(const worker_effects::move& x) {
  auto& it = parts_.at(x.of);
  for (const auto& move : it.what.moves) {
    const auto known = store_.find(move.layer);
    if (move.source != it.self || (known != store_.end() && known->second.at == x.at))
      continue;
    around_.sees.object(to_string(slot) + " is to send layer " + std::to_string(move.layer) + " at " + to_string(x.at) +
                        ", which it does not hold");
    around_.plane.close(it.what.next, *this);
    return do_all(machine_.not_moved(x.of, failure::refused, "layer is not held at that version", held()));
  }
  end_feed(it, x.at);
  move_all(it, false);
  move_caches(it);
  if (!it.is_rank())
    move_all(it, true);
  it.transfers_at = x.at;
  busy_ = true;
  if (const auto left = it.sent_at - around_.time.now(); left > 0ns)
    around_.time.after(process, left, [this, g = it.what.next, alive = alive_] {
      if (auto* x = *alive ? find(g) : nullptr; x && x->transfers_at)
        finish_transfer(*x);
    });
  finish_transfer(it);
}

void simulated_worker::move_all(part& x, bool late) {
  if (late && !x.has_late_parts())
    return;
  for (const auto& move : x.what.moves)
    if (move.source == x.self && !x.feeds.contains({move.layer, move.destination}))
      x.sent_at = around_.time.now() + around_.plane.move(x.what.next, move, store_.at(move.layer), late);
}

void simulated_worker::do_one(const worker_effects::settle&) {
  if (auto* x = current(); x && !x->is_whole)
    keep_arrived(*x);
  do_all(machine_.settled(held()));
}

void simulated_worker::do_one(const worker_effects::begin& x) {
  if (current_ == x.of)
    return around_.sees.object(to_string(slot) + " is to begin what it trains");
  if (auto* before = current()) {
    around_.plane.close(before->what.next, *this);
    parts_.erase(*current_);
  }
  current_ = x.of;
  auto& it = *current();
  it.state = {};
  it.state.at = x.at;
  it.state.is_final = x.at.steps == it.what.specification.steps;
  it.next.due = x.snapshot;
  told_at_ = {};
  snapshot_by_.reset();
  late_wait_ms_ = 0;
  move_all(it, true);
  it.begins_whole = it.state.is_final;
  busy_ = true;
  if (!it.begins_whole) {
    busy_ = false;
    do_all(machine_.begun(it.state));
  }
  if (serves())
    say_served(it.what.next);
  look_whether_whole(it);
}

void simulated_worker::do_one(const worker_effects::ask_to_stop& x) {
  if (current_ != x.of)
    return;
  auto& it = *current();
  it.next.stop = true;
  it.next.snapshot |= x.snapshot;
  if (!serves() || it.what.target.stage_of(it.self) > 0)
    return;
  it.drained = true; // behind what it took
  around_.plane.tell(it.what.next, it.self, {it.what.target.pipeline_of(it.self), false}, {});
  go_on();
}

void simulated_worker::do_one(const worker_effects::ask_for_snapshot&) {
  current()->next.due = true;
}

void simulated_worker::do_one(const worker_effects::apply& x) {
  apply(x.result);
  do_all(machine_.applied(current()->state));
}

void simulated_worker::do_one(const worker_effects::drop_gradients&) {
  current()->state.complete = no_step;
}

void simulated_worker::do_one(const worker_effects::send_snapshot& x) {
  const auto& it = *current();
  for (const auto& share : feed_.keepers) {
    parcel sent{feed_.job, feed_.permit, x.result, {}};
    if (const auto& job = it.what.specification; x.steps_follow && job.paces_snapshots())
      sent.share_of_link = job.keeper_share_of_link;
    for (auto layer = it.first(); layer < it.last(); ++layer)
      if (sends_to(share, it.what.target, it.self, layer, x.whole))
        sent.layers.emplace_back(layer, store_.at(layer));
    if (sent.layers.empty())
      continue;
    sent_at_ = it.state.at;
    sent.losses = shards_of(machine_.losses(), 0, it.state.at);
    const auto on_its_way = std::make_shared<parcel>(std::move(sent));
    sent_.push_back(on_its_way);
    around_.plane.bring(process, share.keeper.slot, on_its_way, streams_);
  }
  if (it.what.specification.paces_snapshots()) // a processor, or a device, which copies behind the step
    rests_until_ =
        around_.time.now() + (around_.time.chance().percent(50) ? around_.time.chance().between(0ms, 2s) : 0ms);
}

void simulated_worker::do_one(const worker_effects::free_shards& x) {
  for (const auto layer : x.layers)
    store_.erase(layer);
  store_changed();
}

void simulated_worker::do_one(const worker_effects::use_keepers& x) {
  const auto& y = x.what;
  const bool goes_on = is_repeated(feed_, y);
  feed_ = y;
  if (!goes_on) {
    streams_ = std::make_shared<int>();
    sent_.clear();
    sent_at_ = {};
  }
}

void simulated_worker::do_one(const worker_effects::forget_job& x) {
  if (feed_.job != x.job)
    return;
  feed_ = {};
  streams_.reset();
  sent_.clear();
}

// Preparation and transfer

void simulated_worker::answer_load(const load& x) {
  if (around_.lacks && around_.lacks->of_data)
    do_one(worker_effects::say{failed{{}, failure::data, 0, lost_data, {}}});
  else
    do_one(worker_effects::say{x.specification.serves() ? loaded{x.job, {}, {}, {16, {16, 48}}}
                                                        : loaded{x.job, "digest"}});
}

void simulated_worker::cannot_prepare(generation g) {
  const auto* x = find(g);
  if (!x)
    return;
  const bool lacks_data = around_.lacks->of_data;
  do_all(machine_.not_connected(
      x->id(),
      {g, lacks_data ? failure::data : failure::computation, 0, lacks_data ? lost_data : "out of memory", {}}));
}

void simulated_worker::on_connected(generation g) {
  if (const auto* x = find(g))
    do_all(machine_.connected(x->id(), checksum_of(x->what)));
}

void simulated_worker::on_unreachable(generation g, std::uint32_t peer) {
  if (const auto* x = find(g))
    do_all(machine_.not_connected(x->id(), {g, failure::unreachable, peer, "nobody there", {}}));
}

void simulated_worker::on_closed(generation g, std::uint32_t peer) {
  auto* x = find(g);
  if (!x)
    return;
  x->closed.insert(peer);
  const auto with_peer = [&](const shard_move& y) {
    return (y.source == peer && y.destination == x->self) || (y.destination == peer && y.source == x->self);
  };
  if (x->is_warm && std::ranges::any_of(x->what.moves, with_peer))
    not_fed(g, failure::communication);
  if (x->transfers_at)
    finish_transfer(*x);
  else if (x == current() && x->broken() && in_step_)
    look_for_others();
  else if (x == current() && x->broken() && serves())
    go_on();
  else if (x == current() && x->broken() && std::exchange(x->begins_whole, false)) {
    busy_ = false;
    do_all(machine_.step_failed(x->state, failure::communication, "a connection closed"));
    go_on();
  }
}

void simulated_worker::on_shard(generation g, std::uint32_t layer, const layer_state& y, bool late) {
  auto* x = find(g);
  if (!x)
    return;
  x->computable.insert(layer);
  if (late || !x->has_late_parts())
    x->arrived[layer] = y;
  if (x->transfers_at)
    finish_transfer(*x);
  else if (x == current())
    look_whether_whole(*x);
}

// As far as it can.
void simulated_worker::finish_transfer(part& x) {
  const auto is_awaited = [&](const auto& y) { return y.destination == x.self && !x.computable.contains(y.layer); };
  const auto& moves = x.what.moves;
  const bool sends = !x.is_rank() && around_.time.now() < x.sent_at;
  const bool fails = std::ranges::any_of(moves, [&](const auto& y) {
    return (is_awaited(y) && x.closed.contains(y.source)) ||
           (sends && y.source == x.self && x.closed.contains(y.destination));
  });
  if (!fails && (sends || awaits_caches(x) || std::ranges::any_of(moves, is_awaited)))
    return;
  const auto at = *std::exchange(x.transfers_at, {});
  busy_ = false;
  if (fails) {
    around_.plane.close(x.what.next, *this);
    keep_arrived(x);
    do_all(machine_.not_moved(x.id(), failure::communication, "a connection closed", held()));
  } else {
    complete_stage(x, at);
  }
  go_on();
}

void simulated_worker::keep_arrived(part& x) {
  for (const auto& [layer, y] : std::exchange(x.arrived, {})) {
    around_.sees.object(problem_with_bits(layer, y.at, y.bits));
    store_[layer] = y;
  }
  store_changed();
}

void simulated_worker::look_whether_whole(part& x) {
  const auto is_awaited = [&](const auto& y) { return y.destination == x.self && !x.arrived.contains(y.layer); };
  if (x.is_whole || std::ranges::any_of(x.what.moves, is_awaited) || !machine_.trains())
    return;
  x.is_whole = true;
  keep_arrived(x);
  machine_.became_whole(held());
  if (std::exchange(x.begins_whole, false)) {
    busy_ = false;
    do_all(machine_.begun(x.state));
    go_on();
  } else if (x.ends_whole && in_step_) {
    end_if_whole(x);
    go_on();
  } else if (x.has_computed && in_step_ && !x.doing.evaluates) {
    late_wait_ms_ = std::chrono::duration<double, std::milli>(around_.time.now() - waits_since_).count();
    contribute(x);
  }
}

void simulated_worker::complete_stage(part& x, const version& at) {
  const auto lacking = x.is_rank() ? lacking_layers(x.what, x.self, held(), at) : std::vector<std::uint32_t>();
  for (const auto layer : lacking) {
    if (at != version{}) {
      around_.sees.object(to_string(slot) + " needs layer " + std::to_string(layer) + " at " + to_string(at) +
                          " and is sent nothing");
      around_.plane.close(x.what.next, *this);
      return do_all(machine_.not_moved(x.id(), failure::refused, "a layer is neither held nor sent", held()));
    }
    store_[layer] = {at, initial_bits(layer)};
  }
  store_changed();
  do_all(machine_.moved(x.id(), held()));
}

} // namespace parcae::simulation
