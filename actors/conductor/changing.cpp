#include "actors/conductor/conductor_machine.hpp"
#include "planner/situation/memory.hpp"

#include <algorithm>

// Preparing, readying and warming, clearing, activating: from a plan to the generation that follows it.

namespace parcae {

using enum phase;

// clang-format off
std::vector<conductor::machine::row> conductor::machine::changing_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {{preparing, readying}, says_prepared, "it understood another plan", &m::is_another_plan,
      "does without it", &m::exclude_for_plan, {}},
    {{preparing, readying}, says_prepared, "", nullptr,
      "one answer less to wait for", &m::note_answer, {}},
    {preparing, unreachable, "", nullptr,
      "does without the younger one for now", &m::exclude_younger, {}},
    {preparing, all_answered, "", nullptr,
      "", &m::note_prepared, activating},

    // Nothing runs: the inventories are needed to plan anew.
    {preparing, part_lost, "", nullptr,
      "", &m::clear, clearing},
    {preparing, next_broken, "", nullptr,
      "counts a restart", &m::clear_broken, clearing},
    {preparing, notice, "to a rank of g+1, and ends before the limit", &m::is_new_rank,
      "", &m::clear, clearing},
    {preparing, closing, "", nullptr,
      "", &m::clear_for_good, clearing},
    {clearing, says_aborted, "of g+1", &m::of_next,
      "one answer less to wait for", &m::note_answer, {}},
    {clearing, failed_alive, "", nullptr, // and still says what it holds
      "", nullptr, {}},
    {clearing, all_answered, "", nullptr,
      "", nullptr, planning},

    {activating, says_active, "", nullptr,
      "one answer less to wait for", &m::note_begun, {}},
    {activating, all_answered, "all ranks have stopped, with no step left", &m::all_are_stopped,
      "learns what the change took", &m::note_active, finishing},
    {activating, all_answered, "", nullptr,
      "learns what the change took", &m::note_active, running},
  };
}

// g is healthy whatever becomes of g+1.
std::vector<conductor::machine::row> conductor::machine::beside_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {readying, all_answered, "much is to be moved, and the links keep up", &m::goes_ahead,
      "", &m::note_prepared, warming},
    {readying, all_answered, "", nullptr,
      "", &m::note_prepared, stopping},
    {warming, says_warmed, "", nullptr,
      "one answer less to wait for", &m::note_answer, {}},
    {warming, all_answered, "", nullptr,
      "", &m::note_warm, stopping},
    // Nobody waits for a feed: what is not there is moved while nobody trains.
    {warming, late, "", nullptr,
      "moves the rest after the stop", &m::move_rest, stopping},
    {warming, last_moment, "", nullptr,
      "moves the rest after the stop", &m::move_rest, stopping},
    // Whoever is at fault is heard of otherwise.
    {warming, next_broken, "", nullptr, // perhaps by one who is a rank of g
      "ABORT of g+1, of which followers are kept; plans soon", &m::give_up_broken, running},
    {warming, refused, "not for want of its connections", &m::fails_by_itself,
      "ABORT of g+1; it gets no new place for now", &m::refuse_place, running},
    {{readying, warming}, part_lost, "", nullptr,
      "ABORT of g+1; plans soon", &m::give_up, running},
    {readying, refused, "", nullptr,
      "ABORT of g+1; it gets no new place for now", &m::refuse_place, running},
    {readying, unreachable, "", nullptr,
      "ABORT of g+1; the younger one gets no new place for now", &m::refuse_younger, running},
    {readying, late, "", nullptr,
      "ABORT of g+1; who is late gets no new place for now", &m::give_up_late, running},
    {warming, notice, "to one with a place in g or g+1, and ends before the limit", &m::is_of_change,
      "ABORT of g+1; plans soon", &m::give_up, running},
    {readying, notice, "to one with a place in g or g+1, and ends before the limit", &m::is_of_change,
      "ABORT of g+1; who is late gets no new place for now", &m::give_up_for_notice, running},
    {readying, last_moment, "", nullptr,
      "ABORT of g+1; plans soon", &m::give_up, running},
    {{readying, warming}, closing, "", nullptr,
      "ABORT of g+1", &m::give_up_for_good, running},
  };
}
// clang-format on

// The plan

void conductor::machine::plan_next(const version& from) {
  auto& all = generations_;
  const auto& choice = desk_.choice;
  changes_.open(now_, desk_.trigger());
  std::vector<candidate> candidates;
  for (const auto& [id, slot] : roster_.slots()) {
    if (slot.excluded)
      continue;
    const bool gets_no_place = slot.leaving || (!slot.keeper && !slot.usable());
    candidates.push_back({slot.where, {}, slot.keeper, gets_no_place, slot.past.age});
    if (!all.current || all.current->gone.contains(id))
      candidates.back().held = slot.held;
    else
      for (auto layer : all.current->layers_of(id))
        candidates.back().held.push_back({layer, from});
  }
  auto& next = all.next.emplace();
  next.plan = plan_change(choice.width, choice.first_layer, candidates, from, job_.model.state_bytes,
                          all.last_grid ? &*all.last_grid : nullptr);
  all.newest = {all.newest.value + 1};
  if (all.newest > all.reserved) {
    all.reserved = {all.newest.value + generations::reserved_at_once - 1};
    persist({});
  }
  all.base = from;
  next.what = {.next = all.newest,
               .token = token_for(all.newest),
               .job = job_.id,
               .specification = job_.specification,
               .data_digest = job_.specification.serves() ? std::string() : roster_.data_digest(),
               .target = next.plan.target,
               .moves = next.plan.moves};
  if (job_.specification.serves())
    next.plan.reason +=
        service_.plan_caches(all, roster_, job_.model.cache_bytes, changes_.figures().link_bytes_per_ms, next.what);
  next.checksum = checksum_of(next.what);
  next.feed_ms = all.current ? feed_ms(next.plan) : std::nullopt;
  const auto early = static_cast<double>(busiest_link_bytes(next.plan.moves, job_.early_bytes()));
  changes_.plan(now_, all.newest, next.plan, all.current.has_value(), next.feed_ms ? 0 : early);
  phase_.problem.clear();
  log(severity::information, "generation " + std::to_string(all.newest.value) + ": " + changes_.record().configuration +
                                 " after " + changes_.trigger() + "; " + choice.reason + "; " + next.plan.reason);
}

// PREPARE

void conductor::machine::begin_preparing() {
  const auto& next = *generations_.next;
  ask(next.participants(), next.what, job_.options.prepare_limit);
}

bool conductor::machine::is_another_plan(const trigger& x) const {
  return std::get<prepared>(*x.said).checksum != generations_.next->checksum;
}

void conductor::machine::exclude_for_plan(const trigger& x) {
  const auto why = to_string(x.slot) + " understood another plan; is it another build?";
  exclude(x.slot, why, true);
  missing(x.slot, why);
}

void conductor::machine::exclude_younger(const trigger& x) {
  exclude(x.slot, x.why);
  missing(x.slot, x.why);
}

bool conductor::machine::ends_before_change(const trigger& x) const {
  const auto* slot = roster_.find(x.slot);
  return next_is_good({}) && slot && slot->leaving && phase_.limit && *slot->leaving < *phase_.limit;
}

bool conductor::machine::is_of_change(const trigger& x) const {
  return ends_before_change(x) && (generations_.takes_part(x.slot) || generations_.has_place(x.slot));
}

// WARM: layers go ahead of the change

std::optional<double> conductor::machine::feed_ms(const change_plan& plan) const {
  const auto& figures = changes_.figures();
  const auto busiest = [&](const std::vector<std::uint64_t>& layers) {
    return static_cast<double>(busiest_link_bytes(plan.moves, layers));
  };
  const double step_ms = course_.step_ms();
  if (!job_.specification.feed || job_.specification.serves() || plan.moves.empty() || !(step_ms > 0) ||
      !has_room_to_feed(plan))
    return std::nullopt;
  const double rate = desk_.choice.samples_per_s;
  const double next_step_ms = rate > 0 ? 1000.0 * job_.specification.global_batch / rate : step_ms;
  const auto all = busiest(job_.model.state_bytes), early = busiest(job_.early_bytes());
  const auto saved = moving_cost(figures, early, all - early, next_step_ms);
  const auto fed = feeding_cost(figures, step_ms, next_step_ms, busiest(job_.gradient_bytes()), all);
  if (!fed)
    return std::nullopt;
  const bool is_urgent =
      std::ranges::any_of(roster_.leaving(), [&](const auto& x) { return generations_.current->has(x); });
  const auto least = static_cast<double>(job_.options.feed_from.count());
  const bool is_worth_it = least == 0 || (saved.bytes_ms >= least && (is_urgent || fed->costs_ms <= saved.total_ms()));
  if (!is_worth_it)
    return std::nullopt;
  constexpr double steps_allowed = 1; // beside those that it takes in the mean
  return fed->takes_ms + steps_allowed * longest_step_ms();
}

// Who trains holds, besides, the gradients of a step once more, of what it sends and of what it follows, and as much of
// copies that leave, or a layer.
bool conductor::machine::has_room_to_feed(const change_plan& plan) const {
  const auto slot = roster_.memory();
  if (slot.bytes == 0)
    return true;
  const auto gradients = job_.gradient_bytes();
  const auto& current = *generations_.current;
  const auto& grid = current.grid;
  const auto keepers = slot.of_device ? 0 : static_cast<std::uint32_t>(roster_.snapshot_targets().size());
  for (const auto& [id, rank] : current.rank_of) {
    std::uint64_t more = 0, sent = 0, largest = 0;
    for (const auto& x : plan.moves) {
      const bool sends = plan.target.participants[x.source].slot == id;
      more += sends || plan.target.participants[x.destination].slot == id ? gradients[x.layer] : 0;
      sent += sends ? gradients[x.layer] : 0;
      largest = std::max(largest, sends ? job_.model.state_bytes[x.layer] : 0);
    }
    const auto usual = memory_of(job_.specification, course_.steps().costs(job_.model.costs), grid.first_layer,
                                 grid.stage_of(rank), grid.width, keepers)
                           .total();
    if (more > 0 && usual + more + std::max(sent, largest) > slot.bytes)
      return false;
  }
  return true;
}

void conductor::machine::begin_warming() {
  const auto& next = *generations_.next;
  generations_.next->warm = true;
  ask(next.participants(), warm{next.what.next}, moving(*next.feed_ms));
  happens({trigger_kind::leaving});
}

void conductor::machine::note_warm(const trigger&) {
  log(severity::information, "generation " + std::to_string(generations_.next->what.next.value) + " is warm");
}

void conductor::machine::move_rest(const trigger& x) {
  const auto& next = *generations_.next;
  changes_.move_after(static_cast<double>(busiest_link_bytes(next.plan.moves, job_.early_bytes())));
  log(severity::information, "generation " + std::to_string(next.what.next.value) +
                                 " is not warm yet, and begins: " + (x.why.empty() ? "the limit passed" : x.why));
}

// Giving up a generation that never ran

void conductor::machine::abort_next(bool keeps) {
  if (!generations_.next)
    return;
  const auto& next = *generations_.next;
  const auto g = next.what.next;
  if (keeps && next.warm)
    generations_.ahead = {g, next.destinations()};
  for (const auto& slot : next.participants())
    send(slot, abort_generation{g, 0, keeps && next.warm});
  generations_.next.reset();
}

void conductor::machine::free_ahead() {
  if (const auto ahead = std::exchange(generations_.ahead, {}))
    for (const auto& slot : ahead->by)
      send(slot, abort_generation{ahead->of});
}

// g is healthy and goes on. The answers are not waited for: a newer PREPARE supersedes.
void conductor::machine::give_up(const trigger& x) {
  abort_next();
  log(severity::information, "change given up: " + x.why);
  changes_.give_up();
  plan_soon(x.why);
}

// Its loss may be heard of after that: until g commits again what went ahead counts.
void conductor::machine::give_up_broken(const trigger& x) {
  abort_next(true);
  give_up(x);
}

void conductor::machine::refuse_place(const trigger& x) {
  refuse_new_place(x.slot, std::get<failed>(*x.said).what);
  give_up(x);
}

void conductor::machine::spoil_and_refuse(const trigger& x) {
  refuse_new_place(x.slot, std::get<failed>(*x.said).what);
  spoil(x);
}

void conductor::machine::refuse_younger(const trigger& x) {
  refuse_new_place(x.slot, x.why);
  give_up(x);
}

void conductor::machine::give_up_late(const trigger& x) { // g is healthy, even if a rank of it does not answer
  for (const auto& slot : phase_.awaited)
    refuse_new_place(slot, "no answer from " + to_string(slot) + " while " + to_string(phase_.now));
  give_up({x.kind, {}, "no answer from " + to_string(*phase_.awaited.begin()) + " while " + to_string(phase_.now)});
}

void conductor::machine::give_up_for_notice(const trigger& x) {
  // Others can take its state over only if no one keeps them waiting again.
  if (*phase_.limit - job_.options.prepare_limit + job_.options.request_limit <= now_)
    for (const auto& slot : phase_.awaited)
      refuse_new_place(slot, "no answer while " + to_string(phase_.now));
  give_up(x);
}

// Nothing runs: the inventories are needed to plan anew.
void conductor::machine::clear(const trigger& x) {
  desk_.because(x.why);
  log(severity::information, "change begun anew: " + x.why);
}

void conductor::machine::clear_broken(const trigger& x) {
  desk_.count_restart();
  clear({x.kind, {}, "communication failed at " + x.why});
}

void conductor::machine::begin_clearing() {
  const auto& next = *generations_.next;
  ask(next.participants(), abort_generation{next.what.next}, job_.options.request_limit);
}

// ACTIVATE

activate conductor::machine::activation() const {
  const auto base = chain_.newest();
  return {generations_.current->g, base, losses_.newest(base.steps)};
}

void conductor::machine::begin_activating() {
  auto& all = generations_;
  const auto g = all.next->what.next;
  chain_.begin(g, all.base.steps);
  generations_.early_end.reset();
  all.last_grid = all.next->what.target;
  all.last = g;
  all.ended_by = {};
  persist("generation " + std::to_string(g.value) + " begins at version " + to_string(all.base));
  all.current.emplace(g, all.next->what.target, all.base.steps, now_);
  all.on_grid = true;
  course_.begin(*all.last_grid, roster_.side_by_side(*all.last_grid), roster_.kind_of(*all.last_grid));
  if (share_layers()) // other machines compute them now
    for (const auto& [id, slot] : roster_.workers())
      send(id, protect_message(id, false));
  all.current->moved_bytes = all.next->plan.bytes;
  all.next.reset();
  for (const auto& [id, slot] : roster_.keepers())
    send(id, guard_message());
  for (const auto& id : all.current->sources())
    send(id, activation());
  ask(all.current->ranks(), activation(), job_.transfer_limit(all.current->moved_bytes));
}

void conductor::machine::note_begun(const trigger& x) {
  generations_.current->starts.begins(std::get<active>(*x.said), roster_.find(x.slot)->answered_at, now_);
  note_answer_of_rank(x);
}

void conductor::machine::note_active(const trigger&) {
  const auto& current = *generations_.current;
  changes_.activate(current.starts.last.value_or(now_), current.starts.early_ms, current.g, current.grid.ranks());
}

} // namespace parcae
