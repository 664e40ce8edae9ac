#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>

// Events but reports.

namespace parcae {

using enum phase;

namespace {

constexpr milliseconds beat{1'000}; ///< between two events at most, while answers are waited for
constexpr milliseconds late{1'000}; ///< a tick; a busy machine is not that late

change_view changes_before(const conducted_job& job) {
  auto result = job.past.changes;
  result.replayed_steps = job.memory.replayed_steps;
  return result;
}

/// Generation 0 stands for all that another job did.
commit_chain chain_of(const resume_point& resume, const job_memory& memory) {
  commit_chain result(memory.chain);
  if (resume.steps > 0 && memory.chain.empty()) {
    result.begin({0}, 0);
    result.end({0}, resume.steps);
  }
  return result;
}

} // namespace

std::unique_ptr<conductor> conductor::make(conducted_job job, observer observe) {
  return std::make_unique<machine>(std::move(job), std::move(observe));
}

conductor::machine::machine(conducted_job job, observer observe) :
    job_(std::move(job)), observe_(std::move(observe)), roster_(job_.options.exclusion),
    chain_(chain_of(job_.specification.resume, job_.memory)), changes_(changes_before(job_)),
    course_(chain_.newest().steps, job_.past.training), protection_(job_), ledger_(job_) {
  const auto& memory = job_.memory;
  const auto& resume = job_.specification.resume;
  roster_.set_data_digest(is_recovered() ? memory.data_digest : resume.steps > 0 ? resume.data_digest : "");
  auto& all = generations_;
  all.newest = all.reserved = memory.reserved;
  all.last = memory.last;
  all.ended_by = memory.result;
  if (memory.last == generation{})
    return;
  // Its ranks may be training. ACTIVATE starts those that wait for it, and others say where they are; if it had ended,
  // ABORT does.
  all.last_grid = memory.grid;
  all.current.emplace(memory.last, memory.grid, chain_.is_open() ? chain_.links().back().base : 0, now_);
  all.on_grid = true;
  course_.begin(memory.grid, 1);
  const auto question =
      chain_.is_open() ? command(activate{memory.last, chain_.newest()}) : command(abort_generation{memory.last});
  stand_ = {recovering, all.current->ranks(), std::make_shared<const command>(question), {}};
  problem_ = "waiting for the return of those that trained";
}

std::vector<effect> conductor::machine::handle(time_point now, const conductor_event& x) {
  effects_.clear();
  if (stand_.now != ended) {
    notice_standstill(now);
    now_ = now;
    std::visit([this](const auto& event) { on(event); }, x);
    if (protection_.is_doubtful() && stand_.now != ended)
      believe_again();
    if (closing_until_ && stand_.now != ended)
      close();
  }
  return std::move(effects_);
}

std::optional<time_point> conductor::machine::deadline() const {
  std::optional<time_point> earliest;
  if (stand_.now != ended)
    for (const auto& t :
         {stand_.limit, desk_.at(), moment_to_secure(), roster_.next_return(), closing_until_, next_beat()})
      if (t)
        earliest = std::min(earliest.value_or(*t), *t);
  return earliest;
}

job_view conductor::machine::view() const {
  job_view result;
  static_cast<training_view&>(result) = course_.view(job_.specification, job_.model.costs, platform());
  static_cast<change_view&>(result) = changes_.view();
  static_cast<protection_view&>(result) = protection_.view(roster_);
  static_cast<checkpoint_view&>(result) = ledger_.view();
  result.now = stand_.now;
  result.current = generations_.last;
  if (generations_.on_grid)
    result.grid = generations_.last_grid;
  result.figures = changes_.figures();
  result.chain = chain_.links();
  result.problem = problem_;
  result.layers = job_.layers();
  result.on_devices = roster_.memory().of_device;
  for (const auto& [id, slot] : roster_.keepers())
    result.keepers.push_back(keeper_record_of(id, slot.held));
  for (const auto& [id, slot] : roster_.workers())
    if (!slot.usable() && !slot.leaving && !generations_.has_place(id))
      result.unused.push_back({id, slot.unused_because.empty() ? "loads the data" : slot.unused_because});
  if (stand_.now == ended && problem_.empty())
    for (auto& [layer, digest] : digests_of(roster_))
      result.layer_digests.push_back({layer, digest});
  return result;
}

bool conductor::machine::can_go(const slot_id& slot) const {
  const bool settled = stand_.now == running && course_.steps_done() > generations_.current->base;
  return settled && !writes(slot) && !generations_.has_place(slot);
}

// Effects

job_memory conductor::machine::memory() const {
  auto result = ledger_.memory();
  result.reserved = generations_.reserved;
  result.chain = chain_.links();
  result.last = generations_.last;
  result.grid = generations_.last_grid.value_or(placement{});
  result.result = generations_.ended_by;
  result.data_digest = roster_.data_digest();
  result.replayed_steps = changes_.view().replayed_steps;
  return result;
}

void conductor::machine::send(const slot_id& to, std::shared_ptr<const command> what) {
  if (auto* slot = roster_.find(to)) {
    if (const auto* p = std::get_if<prepare>(what.get()))
      slot->given.prepared = p->next;
    if (const auto* a = std::get_if<activate>(what.get()))
      slot->given.activated = a->next;
    if (const auto* r = std::get_if<release>(what.get()))
      slot->given.released = r->current;
  }
  effects_.push_back(tell{to, std::move(what)});
}

// Who is there

void conductor::machine::on(const slot_joined& x) {
  const auto& id = x.where.slot;
  auto& slot = roster_.join(id);
  slot.where = x.where;
  slot.keeper = x.keeper;
  slot.memory = x.memory;
  slot.machine = x.machine;
  const bool returned = take_back(id, slot);
  if (x.keeper) { // it counts once it has said what it holds
    send(id, guard_message());
    confirm_to(id);
    say_what_finishing_waits_for();
    if (stand_.now == aborting && generations_.current->keepers_asked)
      ask_too(id);
  } else if (!returned) { // else planned with once it has said what it holds
    if (!protection_.shares().empty())
      send(id, protect_message(id, false));
    ask_to_load(id, slot, "join of ");
  }
}

bool conductor::machine::take_back(const slot_id& id, slot_state& slot) {
  const auto given = roster_.come_back(id);
  if (!given && !is_recovered())
    return false;
  if (is_recovered() && !returning_until_)
    returning_until_ = now_ + job_.options.return_limit;
  if (stand_.now == recovering && !stand_.limit)
    stand_.limit = now_ + job_.options.return_limit;
  const bool is_asked = stand_.now == recovering || (stand_.now == aborting && !given);
  if (!slot.keeper && is_asked && generations_.has_place(id)) {
    stand_.now == recovering ? send(id, stand_.question) : ask_too(id);
    if (roster_.has_keepers()) // they may be others than it knows
      send(id, protect_message(id, !protection_.is_current()));
    ask_to_load(id, slot, "return of ");
    return true;
  }
  if (!slot.keeper) { // not used before it has answered
    roster_.exclude(slot, now_ + job_.options.request_limit);
    slot.asked_back = true;
  }
  // Nothing older than the one it was to compute last is left there, nor newer than the one it prepared last.
  if (!given && !slot.keeper)
    send(id, abort_generation{{0}}); // no generation: only asks for the inventory
  const auto told = given.value_or(generations_told{});
  for (const auto g : {told.activated, told.prepared})
    if (g != generation{})
      send(id, abort_generation{g});
  return true;
}

void conductor::machine::ask_to_load(const slot_id& id, slot_state& slot, const char* arrival) {
  slot.loaded = false;
  slot.arrival = arrival + to_string(id);
  send(id, load{job_.id, job_.specification});
  if (stand_.now == waiting && roster_.usable() == 0)
    problem_ = loading_data;
}

void conductor::machine::on(const slot_leaving& x) {
  const auto* slot = roster_.find(x.slot);
  if (!slot)
    return;
  const auto before = roster_.snapshot_targets();
  roster_.leaves(x.slot, x.expires);
  if (slot->keeper) { // its disk outlives it
    on(checkpoint_wanted{});
    if (roster_.snapshot_targets() != before)
      protect_all();
  }
  const cause why{"notice to " + to_string(x.slot), x.slot};
  watch_notices();
  const bool is_final = stand_.now == finishing;
  if (!happens(happening::notice, why) || !is_final)
    plan_soon(why.why);
}

void conductor::machine::on(const slot_lost& x) {
  const auto* slot = roster_.find(x.slot);
  if (!slot)
    return;
  desk_.forget_restarts();
  const bool was_keeper = slot->keeper;
  roster_.lose(x.slot);
  if (was_keeper) {
    protect_all();
    note_share(ledger_.lose(x.slot, chain_));
    say_what_finishing_waits_for();
  }
  missing(x.slot, "loss of " + to_string(x.slot) + " (" + x.why + ")");
}

void conductor::machine::missing(const slot_id& slot, const std::string& why) {
  const cause x{why, slot};
  const bool has_place = generations_.has_place(slot);
  if (!(has_place && happens(happening::place_lost, x)) &&
      !(generations_.takes_part(slot) && happens(happening::part_lost, x)))
    happens(happening::lost, x);
}

void conductor::machine::exclude(const slot_id& id, const std::string& why, bool for_good) {
  if (auto* slot = roster_.find(id)) {
    if (std::exchange(slot->unused_because, why) != why) // else it tried again, in vain
      log(severity::warning, to_string(id) + " is not used for now: " + why);
    for_good ? roster_.exclude(*slot, time_point::max()) : roster_.exclude_for_a_while(*slot, now_);
  }
}

void conductor::machine::refuse_new_place(const slot_id& id, const std::string& why) {
  if (auto* slot = roster_.find(id)) {
    if (std::exchange(slot->unused_because, why) != why)
      log(severity::warning, to_string(id) + " gets no new place for now: " + why);
    roster_.refuse_new_place(*slot, now_);
  }
}

void conductor::machine::ask_back() {
  for (auto& [id, slot] : roster_.slots()) {
    if (slot.no_new_place && *slot.no_new_place <= now_) {
      slot.no_new_place.reset();
      slot.unused_because.clear();
      plan_soon("return of " + to_string(id));
    }
    if (!slot.excluded || *slot.excluded > now_)
      continue;
    if (slot.asked_back) {
      exclude(id, "it does not say what it holds");
      if (stand_.now == waiting) // perhaps for what this slot holds
        plan_soon(desk_.trigger());
    } else {
      roster_.exclude(slot, now_ + job_.options.request_limit);
      slot.asked_back = true;
      ask_what_is_held(id);
    }
  }
  roster_.find_next_return();
}

void conductor::machine::ask_what_is_held(const slot_id& id) {
  const bool ends = stand_.now == aborting && generations_.has_place(id); // what it says counts for the open step
  send(id, abort_generation{ends ? generations_.current->g : generation{}});
}

// Every command may be repeated, and its answer is given again.
void conductor::machine::on(const slot_returned& x) {
  const auto* slot = roster_.find(x.slot);
  if (!slot)
    return;
  const auto& id = x.slot;
  const auto& current = generations_.current;
  if (stand_.limit)
    stand_.limit = std::max(*stand_.limit, now_ + job_.options.request_limit);
  if (slot->keeper) {
    send(id, guard_message());
    confirm_to(id);
    fill_keepers();
    if (slot->reading)
      send(id, restore{job_.id, ledger_.newest(), ledger_.folder(), job_.specification});
    if (const auto* share = ledger_.repeat(id))
      send(id, *share);
  } else {
    send(id, protect_message(id, roster_.has_keepers() && !protection_.is_current()));
    if (!slot->loaded && !slot->excluded)
      send(id, load{job_.id, job_.specification});
  }
  if (slot->excluded && slot->asked_back)
    ask_what_is_held(id);
  const bool trains = stand_.now == running || stand_.now == readying;
  if (trains && current->has(id)) // it says that it is active, or how it ended
    send(id, activate{current->g, {current->base, {}}});
  if (stand_.question && stand_.awaited.contains(id))
    send(id, stand_.question);
  if (trains && !slot->keeper && current->committed)
    send(id, release_for(id));
  if (stand_.now == waiting && protection_.saving() > protection_.newest()) {
    protection_.save({});
    save_what_leaves();
  }
}

// When to plan, and time

void conductor::machine::plan_soon(const std::string& why) {
  const bool at_once = stand_.now == running || stand_.now == waiting;
  desk_.soon(why, at_once ? std::optional(now_ + job_.options.collect) : std::nullopt);
}

void conductor::machine::ask_planner() {
  const auto& grid = generations_.last_grid;
  const auto costs = course_.steps().costs(job_.model.costs);
  situation now{.slots = roster_.usable(),
                .costs = costs,
                .current = {},
                .left = {},
                .running = stand_.now == running && grid,
                .keepers = static_cast<std::uint32_t>(roster_.snapshot_targets().size()),
                .figures = changes_.figures(),
                .memory = roster_.memory(),
                .measured = course_.steps().measured(job_.specification, costs, platform()),
                .platform = platform()};
  if (grid) {
    now.current = {grid->width, grid->depth};
    now.left.assign(grid->depth, 0);
    for (std::uint32_t rank = 0; rank < grid->ranks(); ++rank)
      if (const auto* slot = roster_.find(grid->participants[rank].slot); slot && slot->usable())
        ++now.left[grid->stage_of(rank)];
  }
  effects_.push_back(request_plan{desk_.ask(), std::move(now)});
}

platform_cost conductor::machine::platform() const {
  platform_cost result;
  result.bytes_per_ms = changes_.figures().link_bytes_per_ms; // as transfers have shown
  result.crowding = course_.steps().crowding();
  roster_.tell_of_busiest_machine(result, job_.specification.threads);
  return result;
}

version conductor::machine::newest_held(bool hoping) const {
  return newest_complete(chain_, job_.layers(), roster_.holders(hoping));
}

void conductor::machine::on(const plan_chosen& x) {
  if (!desk_.awaits(x.request) || (stand_.now != planning && stand_.now != running))
    return;
  changes_.decided(now_, stand_.now == planning ? trigger() : desk_.trigger(), x.what.why);
  course_.offer(x.what.all);
  desk_.choice = x.what.choice;
  if (stand_.now == planning)
    desk_.held = newest_held(false);
  happens(happening::chosen);
}

void conductor::machine::on(const tick&) {
  ask_back();
  if (desk_.at() && *desk_.at() <= now_) {
    const bool news = desk_.begin();
    if (!happens(happening::due, {news ? desk_.trigger() : ""}))
      desk_.miss();
  }
  if (const auto moment = moment_to_secure(); moment && *moment <= now_)
    while (happens(happening::last_moment, // first g+1 is given up
                   {"the notices to those who alone hold a stage end before all are prepared"})) {
    }
  if (stand_.limit && *stand_.limit <= now_)
    happens(happening::late);
}

std::optional<time_point> conductor::machine::next_beat() const {
  const bool asks = stand_.question && stand_.limit && !stand_.awaited.empty();
  return asks ? std::optional(now_ + beat) : std::nullopt;
}

void conductor::machine::notice_standstill(time_point now) {
  std::optional<time_point> due;
  for (const auto& t : {stand_.limit, desk_.at(), next_beat()})
    if (t)
      due = std::min(due.value_or(*t), *t);
  if (!due || now - std::max(*due, now_) < late)
    return;
  // What should have been answered meanwhile may be on its way, or was lost with a connection and will be asked again.
  const auto soonest = now + job_.options.request_limit;
  if (stand_.limit)
    stand_.limit = std::max(*stand_.limit, soonest);
  for (auto& [id, slot] : roster_.slots())
    if (slot.excluded && slot.asked_back)
      slot.excluded = std::max(*slot.excluded, soonest);
}

} // namespace parcae
