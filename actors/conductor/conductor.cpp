#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>
#include <array>

// Events, and how the table is run.

namespace parcae {

using enum phase;

namespace {

constexpr milliseconds beat{1'000}; ///< between two events at most, while answers are waited for
constexpr milliseconds late{1'000}; ///< a tick; a busy machine is not that late

constexpr phases any_phase{recovering, waiting,  planning, preparing, running,    readying, warming,
                           stopping,   clearing, aborting, deciding,  activating, finishing};

history_status changes_before(const conducted_job& job) {
  auto result = job.past.changes;
  result.replayed_steps = job.durable.replayed_steps;
  return result;
}

/// Generation 0 stands for all that another job did.
commit_chain chain_of(const resume_point& resume, const durable_state& durable) {
  commit_chain result(durable.chain);
  if (resume.steps > 0 && durable.chain.empty()) {
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
    chain_(chain_of(job_.specification.resume, job_.durable)), changes_(changes_before(job_)),
    course_(chain_.newest().steps, job_.past.training),
    losses_(job_.past.losses, job_.specification.global_batch, job_.specification.evaluate_every,
            job_.specification.resume.steps),
    protection_(job_), ledger_(job_) {
  const auto& durable = job_.durable;
  const auto& resume = job_.specification.resume;
  roster_.set_data_digest(is_recovered() ? durable.data_digest : resume.steps > 0 ? resume.data_digest : "");
  auto& all = generations_;
  all.newest = all.reserved = durable.reserved;
  all.last = durable.last;
  all.ended_by = durable.result;
  if (durable.last == generation{})
    return;
  // Its ranks may be training. ACTIVATE starts those that wait for it, and others say where they are; if it had ended,
  // ABORT does.
  all.last_grid = durable.grid;
  all.current.emplace(durable.last, durable.grid, chain_.is_open() ? chain_.links().back().base : 0, now_);
  all.current->moved_bytes = job_.state_bytes(0, job_.layers());
  all.on_grid = true;
  course_.begin(durable.grid, 1);
  const auto question = chain_.is_open() ? command(activation()) : command(abort_generation{durable.last});
  phase_ = {recovering, all.current->ranks(), std::make_shared<const command>(question), {}, {}};
  phase_.problem = "waiting for the return of those that trained";
}

std::vector<effect> conductor::machine::handle(time_point now, const conductor_event& x) {
  effects_.clear();
  if (facts().is_over)
    return {};
  notice_standstill(now);
  now_ = now;
  std::visit([this](const auto& event) { on(event); }, x);
  if (protection_.is_doubtful() && !facts().is_over)
    believe_again();
  if (manager_.ends_at && !facts().is_over)
    close();
  tell_gateways();
  return std::move(effects_);
}

std::optional<time_point> conductor::machine::deadline() const {
  std::optional<time_point> earliest;
  if (!facts().is_over)
    for (const auto& t :
         {phase_.limit, desk_.at(), moment_to_secure(), roster_.next_return(), manager_.ends_at, next_beat()})
      if (t)
        earliest = std::min(earliest.value_or(*t), *t);
  return earliest;
}

// The table

const std::vector<conductor::machine::row>& conductor::machine::table() {
  static const auto all = [] {
    std::vector<row> result;
    for (const auto& part : {recovering_rows(), waiting_rows(), planning_rows(), changing_rows(), beside_rows(),
                             training_rows(), stopping_rows(), ending_rows(), finishing_rows(), common_rows()})
      result.insert(result.end(), part.begin(), part.end());
    return result;
  }();
  return all;
}

std::vector<transition> conductor::transitions() {
  return rules_of(machine::table());
}

// clang-format off
std::vector<conductor::machine::row> conductor::machine::common_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {{planning, clearing, aborting, deciding}, lost, "", nullptr,
      "waits for one answer less", &m::note_lost, {}},
    {{waiting, preparing, activating, clearing, aborting, deciding}, trigger_kind::late, "", nullptr,
      "takes who did not answer for lost", &m::take_for_lost, {}},
    {any_phase, over, "", nullptr,
      "ABORT of g, FORGET", &m::say_farewell, ended},
  };
}
// clang-format on

const conductor::machine::row* conductor::machine::happens(const trigger& x) {
  const auto* row = run_row(*this, table(), phase_.now, x.kind, x, observe_);
  if (row && row->to)
    enter(*row->to);
  return row;
}

void conductor::machine::enter(phase to) {
  struct beginning {
    phase of;
    void (machine::*begin)();
  };
  static constexpr std::array<beginning, 13> beginnings{{{waiting, &machine::begin_waiting},
                                                         {planning, &machine::begin_planning},
                                                         {preparing, &machine::begin_preparing},
                                                         {readying, &machine::begin_preparing},
                                                         {warming, &machine::begin_warming},
                                                         {running, &machine::begin_running},
                                                         {stopping, &machine::begin_stopping},
                                                         {clearing, &machine::begin_clearing},
                                                         {aborting, &machine::begin_aborting},
                                                         {deciding, &machine::begin_deciding},
                                                         {activating, &machine::begin_activating},
                                                         {finishing, &machine::begin_finishing},
                                                         {ended, &machine::begin_ended}}};
  phase_ = {to, {}, {}, {}, {}, std::move(phase_.problem)};
  roster_.find_next_return();
  const auto found = std::ranges::find(beginnings, to, &beginning::of);
  (this->*found->begin)();
}

void conductor::machine::ask(const std::set<slot_id>& whom, command what, milliseconds limit, bool excluded_too) {
  phase_.question = std::make_shared<const command>(with_recorded(std::move(what)));
  wait_until(now_ + limit);
  for (const auto& id : whom)
    if (const auto* slot = roster_.find(id)) {
      send(id, phase_.question);
      if (!slot->excluded || excluded_too)
        phase_.awaited.insert(id);
    }
  if (phase_.awaited.empty())
    happens({trigger_kind::all_answered});
}

std::set<slot_id> conductor::machine::keepers_in_use() const {
  std::set<slot_id> result;
  for (const auto& [id, slot] : roster_.keepers())
    if (!slot.excluded)
      result.insert(id);
  return result;
}

command conductor::machine::with_recorded(command what) const {
  if (auto* stopping = std::get_if<stop>(&what))
    stopping->recorded = losses_.settled();
  if (auto* aborting = std::get_if<abort_generation>(&what))
    aborting->recorded = losses_.settled();
  return what;
}

void conductor::machine::ask_too(const trigger& x) {
  send(x.slot, phase_.question);
  phase_.awaited.insert(x.slot);
  prolong_for(x.slot);
}

void conductor::machine::wait_until(time_point limit) {
  phase_.limit = limit;
  phase_.prolonged_for.clear();
}

// By its place, as each life of a process that crashes again and again is another one's.
void conductor::machine::prolong_for(const slot_id& slot) {
  const auto until = now_ + job_.options.request_limit;
  if (phase_.limit && until > *phase_.limit && phase_.prolonged_for.emplace(slot.instance, slot.index).second)
    phase_.limit = until;
}

void conductor::machine::answered(const slot_id& slot) {
  if (phase_.awaited.erase(slot) > 0 && phase_.awaited.empty())
    happens({trigger_kind::all_answered});
}

void conductor::machine::note_lost(const trigger& x) {
  changes_.add_trigger(x.why);
  answered(x.slot);
}

void conductor::machine::take_for_lost(const trigger&) {
  phase_.limit.reset(); // whatever comes of it sets its own
  const auto during = to_string(phase_.now);
  for (const auto& slot : std::set(phase_.awaited)) {
    const auto why = "no answer from " + to_string(slot) + " while " + during;
    exclude(slot, why);
    missing(slot, why); // also if the first has ended the phase: this one may have a place in what goes on
  }
}

// Effects, and what is shown

durable_state conductor::machine::durable() const {
  auto result = ledger_.durable();
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
      slot->commanded.prepared = p->next;
    if (const auto* a = std::get_if<activate>(what.get()))
      slot->commanded.activated = a->next;
    if (const auto* r = std::get_if<release>(what.get()))
      slot->commanded.released = r->current;
  }
  effects_.push_back(tell{to, std::move(what)});
}

job_view conductor::machine::view() const {
  job_view result;
  static_cast<training_view&>(result) = course_.view(job_.specification, job_.model.costs, platform());
  static_cast<history_status&>(result) = changes_.view();
  static_cast<protection_view&>(result) = protection_.view(roster_);
  static_cast<checkpoint_view&>(result) = ledger_.view();
  result.now = phase_.now;
  result.current = generations_.last;
  if (generations_.on_grid)
    result.grid = generations_.last_grid;
  result.change_figures = changes_.figures();
  result.chain = chain_.links();
  result.record = losses_.known();
  result.problem = phase_.problem;
  if (job_.specification.serves()) {
    static_cast<service_status&>(result) = service_.view();
    if (result.problem.empty())
      result.problem = service_.problem();
  }
  result.on_devices = roster_.memory().of_device;
  result.known = known();
  for (const auto& [id, slot] : roster_.workers())
    if (!slot.usable() && !slot.leaving && !generations_.has_place(id))
      result.unused.push_back({id, slot.unused_because.empty() ? "loads the data" : slot.unused_because});
  if (phase_.now == ended && phase_.problem.empty())
    for (auto& [layer, digest] : digests_of(roster_))
      result.layer_digests.push_back({layer, digest});
  return result;
}

bool conductor::machine::can_go(const slot_id& slot) const {
  if (service_.has(slot))
    return service_.is_idle(slot);
  if (facts().waits) // for others, who have all from the keepers
    return takes_nothing_along(slot);
  const bool settled =
      facts().is_calm && (job_.specification.serves() ? generations_.current->committed
                                                      : course_.steps_done() > generations_.current->base);
  return settled && !writes(slot) && !generations_.has_place(slot);
}

bool conductor::machine::takes_nothing_along(const slot_id& id) const {
  const auto* slot = roster_.find(id);
  if (!slot || slot->keeper)
    return false;
  return protection_.newest().steps == chain_.newest().steps || (slot->held.empty() && !slot->excluded);
}

// Events

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
  const auto why = "notice to " + to_string(x.slot);
  plan_soon(why);
  happens({trigger_kind::leaving, x.slot}); // first: it may shorten the limit, which conditions of the other look at
  happens({trigger_kind::notice, x.slot, why});
}

void conductor::machine::on(const checkpoint_wanted&) {
  ledger_.ask(protection_.newest());
  write_checkpoint();
}

void conductor::machine::on(const manager_ends& x) {
  manager_.ends_at = x.until;
  log(severity::information, "the manager ends: the job stops, and the keepers write what they hold to disk");
  happens({trigger_kind::kept}); // nobody waits any more for what is not evaluated
}

// When to plan, and time

void conductor::machine::plan_soon(const std::string& why) {
  // A pipeline that breaks again and again is not to make the others stop each time.
  const bool is_cut = generations_.current && !generations_.current->gone.empty();
  const auto pause = is_cut ? desk_.pause(job_.options.exclusion) : milliseconds(0);
  desk_.soon(why, facts().plans_at_once ? std::optional(now_ + job_.options.collect + pause) : std::nullopt);
}

situation conductor::machine::known() const {
  const auto& grid = generations_.last_grid;
  const auto costs = course_.steps().costs(job_.model.costs);
  situation now{.slots = roster_.usable(),
                .costs = costs,
                .current = {},
                .left = {},
                .running = facts().is_calm && grid,
                .keepers = static_cast<std::uint32_t>(roster_.snapshot_targets().size()),
                .figures = changes_.figures(),
                .memory = roster_.memory(),
                .measured = course_.steps().measured(job_.specification, costs, platform()),
                .platform = platform(),
                .service = service_.measured()};
  if (grid) {
    now.current = {grid->width, grid->depth};
    now.left.assign(grid->depth, 0);
    for (std::uint32_t rank = 0; rank < grid->ranks(); ++rank)
      if (const auto* slot = roster_.find(grid->participants[rank].slot); slot && slot->usable())
        ++now.left[grid->stage_of(rank)];
  }
  return now;
}

void conductor::machine::ask_planner() {
  effects_.push_back(request_plan{desk_.ask(), known()});
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
  if (!desk_.awaits(x.request) || !facts().asks_planner)
    return;
  const bool trains = facts().trains;
  changes_.decided(now_, trains ? desk_.trigger() : reason(), x.what.why);
  course_.offer(x.what.all);
  desk_.choice = x.what.choice;
  if (!trains)
    desk_.held = newest_held(false);
  happens({trigger_kind::chosen});
}

void conductor::machine::on(const tick&) {
  ask_back();
  if (desk_.at() && *desk_.at() <= now_) {
    const bool news = desk_.begin();
    if (!happens({trigger_kind::due, {}, news ? desk_.trigger() : ""}))
      desk_.miss();
  }
  if (const auto moment = moment_to_secure(); moment && *moment <= now_)
    while (happens({trigger_kind::last_moment, // first g+1 is given up
                    {},
                    "the notices to those who alone hold a stage end before all are prepared"})) {
    }
  if (phase_.limit && *phase_.limit <= now_)
    happens({trigger_kind::late});
}

std::optional<time_point> conductor::machine::next_beat() const {
  const bool asks = phase_.question && phase_.limit && !phase_.awaited.empty();
  return asks ? std::optional(now_ + beat) : std::nullopt;
}

void conductor::machine::notice_standstill(time_point now) {
  std::optional<time_point> due;
  for (const auto& t : {phase_.limit, desk_.at(), next_beat()})
    if (t)
      due = std::min(due.value_or(*t), *t);
  if (!due || now - std::max(*due, now_) < late)
    return;
  // What should have been answered meanwhile may be on its way, or was lost with a connection and will be asked again.
  const auto soonest = now + job_.options.request_limit;
  if (phase_.limit)
    phase_.limit = std::max(*phase_.limit, soonest);
  for (auto& [id, slot] : roster_.slots())
    if (slot.excluded && slot.asked_back)
      slot.excluded = std::max(*slot.excluded, soonest);
}

} // namespace parcae
