#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae {

using enum phase;

namespace {

constexpr std::size_t changes_kept = 1000;

} // namespace

conductor::machine::machine(job_id job, job_specification specification, model_facts facts, conductor_options options,
                            const secret_key& secret) :
    job_(job),
    specification_(std::move(specification)), facts_(std::move(facts)), options_(options), secret_(secret) {
  view_.problem = "waiting for instances";
  view_.layers = static_cast<std::uint32_t>(facts_.state_bytes.size());
  if (const auto& resume = specification_.resume; resume.steps > 0) {
    // Generation 0 stands for all that another job did.
    chain_.begin({0}, 0);
    chain_.end({0}, resume.steps);
    view_.chain = chain_.links();
    view_.checkpoint = chain_.newest();
    view_.steps_done = resume.steps;
    checkpoint_name_ = resume.folder;
    data_digest_ = resume.data_digest;
  }
}

std::vector<effect> conductor::machine::handle(time_point now, const conductor_event& x) {
  effects_.clear();
  if (view_.now != ended) {
    notice_standstill(now);
    now_ = now;
    std::visit([this](const auto& event) { on(event); }, x);
    if (doubtful_ && view_.now != ended)
      believe_again();
    if (closing_until_ && view_.now != ended)
      close();
  }
  return std::move(effects_);
}

std::optional<time_point> conductor::machine::deadline() const {
  std::optional<time_point> earliest;
  auto consider = [&](std::optional<time_point> t) {
    if (t && (!earliest || *t < *earliest))
      earliest = t;
  };
  if (view_.now == ended)
    return {};
  consider(limit_);
  consider(plan_at_);
  consider(moment_to_secure());
  consider(next_return_);
  consider(closing_until_);
  return earliest;
}

void conductor::machine::journal(std::string what) {
  view_.chain = chain_.links();
  effects_.push_back(record{chain_.links(), std::move(what)});
}

void conductor::machine::enter(phase to) {
  if (!allowed(view_.now, to))
    log(severity::error, "illegal transition from " + to_string(view_.now) + " to " + to_string(to));
  view_.now = to;
  if (to == waiting || to == ended)
    view_.grid.reset();
  awaited_.clear();
  limit_.reset();
  find_next_return();
}

void conductor::machine::enter_waiting_for(phase to, std::set<slot_id> slots, milliseconds limit) {
  enter(to);
  awaited_ = std::move(slots);
  limit_ = now_ + limit;
}

void conductor::machine::end_job(bool good, const std::string& why) {
  for (const auto& [id, slot] : slots_) {
    if (!slot.keeper && current_)
      send(id, abort_generation{current_->g});
    send(id, forget{job_});
  }
  enter(ended);
  view_.problem = good ? "" : why;
  effects_.push_back(job_ended{good, why});
}

std::vector<participant> conductor::machine::keepers() const {
  std::vector<participant> staying, leaving;
  for (const auto& [id, slot] : slots_)
    if (slot.keeper)
      (slot.leaving ? leaving : staying).push_back(slot.where);
  return staying.empty() ? leaving : staying;
}

void conductor::machine::protect_all() {
  const auto present = keepers();
  for (const auto& [id, slot] : slots_)
    if (!slot.keeper)
      send(id, protect{job_, present, pass(id), !present.empty()});
  update_protection();
}

void conductor::machine::on(const slot_joined& x) {
  auto& slot = slots_[x.where.slot];
  slot = {};
  leaving_.erase(x.where.slot);
  slot.where = x.where;
  slot.keeper = x.keeper;
  slot.slot_bytes = x.slot_bytes;
  slot.machine = x.machine;
  slot.age = ++arrivals_;
  const bool returned = take_back(x.where.slot, slot);
  if (x.keeper) {
    send(x.where.slot, guard_message());
    protect_all();
    say_what_finishing_waits_for();
    if (view_.now == waiting && usable_slots() > 0) { // perhaps for a checkpoint that this one has
      plan_soon("join of " + to_string(x.where.slot));
    } else if (view_.now == waiting) { // those under notice may hold what no keeper has
      saved_ = {};
      save_what_leaves();
    }
    return;
  }
  if (returned) // planned with once it has said what it holds
    return;
  if (const auto present = keepers(); !present.empty())
    send(x.where.slot, protect{job_, present, pass(x.where.slot), false});
  ask_to_load(x.where.slot, slot, "join of ");
}

void conductor::machine::ask_to_load(const slot_id& id, slot_state& slot, const char* arrival) {
  slot.loaded = false;
  slot.arrival = arrival + to_string(id);
  send(id, load{job_, specification_});
  if (view_.now == waiting && usable_slots() == 0)
    view_.problem = loading_data;
}

std::string conductor::machine::data_problem_of_all() const {
  std::string problem;
  for (const auto& [id, slot] : slots_)
    if (!slot.keeper) {
      if (data_found_ || slot.data_problems < data_attempts)
        return {};
      problem = slot.data_problem;
    }
  return problem;
}

void conductor::machine::on(const slot_leaving& x) {
  const auto it = slots_.find(x.slot);
  if (it == slots_.end())
    return;
  const auto before = keepers();
  it->second.leaving = x.expires;
  leaving_.insert(x.slot);
  if (it->second.keeper) { // its disk outlives it
    checkpoint_asked_ |= view_.protected_version > view_.checkpoint;
    write_checkpoint();
    if (keepers() != before)
      protect_all();
  }
  const auto why = "notice to " + to_string(x.slot);
  if (view_.now == stopping)
    watch_notices();
  if (next_ && next_->good && limit_ && x.expires < *limit_) // the change may take longer than the slot is there
    leaves_before_next(x.slot, why);
  if (view_.now == finishing && current_ && current_->rank_of.contains(x.slot) && keepers().empty() &&
      usable_slots() > 0)
    plan_now(why); // the others take the final version over
  else
    plan_soon(why);
}

void conductor::machine::leaves_before_next(const slot_id& slot, const std::string& why) {
  const bool takes_part = participates_in_next(slot);
  if (view_.now == readying && (takes_part || current_->rank_of.contains(slot))) {
    // Others can take its state over only if no one keeps them waiting again.
    if (*limit_ - options_.prepare_limit + options_.request_limit <= now_)
      for (const auto& late : awaited_)
        refuse_new_place(late, "no answer while " + to_string(view_.now));
    give_up_next(why);
  } else if (view_.now == stopping && takes_part) {
    next_->good = false;
  } else if ((view_.now == preparing || view_.now == transferring) && is_rank_of_next(slot)) {
    clear_next(why);
  }
}

void conductor::machine::on(const slot_lost& x) {
  const auto it = slots_.find(x.slot);
  if (it == slots_.end())
    return;
  restarts_ = 0;
  const bool was_keeper = it->second.keeper;
  remember_life(x.slot, it->second);
  slots_.erase(it);
  leaving_.erase(x.slot);
  if (was_keeper) {
    protect_all();
    share_written(x.slot);
    say_what_finishing_waits_for();
  }
  missing(x.slot, "loss of " + to_string(x.slot) + " (" + x.why + ")");
}

void conductor::machine::missing(const slot_id& slot, const std::string& why) {
  const bool has_place = current_ && current_->rank_of.contains(slot);
  const bool takes_part = next_ && participates_in_next(slot);
  switch (view_.now) {
  case running:
    if (has_place)
      abort_current(why);
    break;
  case readying:
    if (has_place)
      abort_current(why);
    else if (takes_part)
      give_up_next(why);
    break;
  case stopping:
    if (takes_part)
      next_->good = false;
    if (has_place)
      abort_current(why);
    break;
  case preparing:
  case transferring:
    if (takes_part)
      clear_next(why);
    break;
  case activating:
    if (has_place)
      abort_current(why);
    break;
  case clearing:
  case aborting:
  case deciding:
    if (!record_.trigger.empty())
      add_cause(record_.trigger, why);
    answered(slot);
    break;
  case finishing:
    if (has_place && final_is_protected())
      view_.grid.reset(); // only the keepers are needed any more
    check_final_state(why);
    break;
  case waiting:
    saved_ = {};            // its share may not have arrived
    if (usable_slots() > 0) // perhaps for the return of this one
      plan_soon(why);
    else
      save_what_leaves();
    break;
  case planning:
  case ended:
    break;
  }
}

void conductor::machine::exclude_until(slot_state& slot, time_point t) {
  slot.excluded = t;
  look_again_at(t);
}

void conductor::machine::look_again_at(time_point t) {
  if (t != time_point::max())
    next_return_ = std::min(next_return_.value_or(t), t);
}

void conductor::machine::exclude(const slot_id& id, const std::string& why, bool for_good) {
  const auto it = slots_.find(id);
  if (it == slots_.end())
    return;
  auto& slot = it->second;
  log(severity::warning, to_string(id) + " is not used for now: " + why);
  if (slot.excluded == time_point::max())
    return;
  exclude_until(slot, for_good ? time_point::max() : now_ + next_back_off(slot));
  slot.asked_back = false;
}

milliseconds conductor::machine::next_back_off(slot_state& slot) const {
  slot.back_off = std::min(longest_back_off, std::max(options_.exclusion, 2 * slot.back_off));
  return slot.back_off;
}

void conductor::machine::refuse_new_place(const slot_id& id, const std::string& why) {
  const auto slot = slots_.find(id);
  if (slot == slots_.end())
    return;
  log(severity::warning, to_string(id) + " gets no new place for now: " + why);
  slot->second.no_new_place = now_ + next_back_off(slot->second);
  look_again_at(*slot->second.no_new_place);
}

void conductor::machine::ask_back() {
  for (auto& [id, slot] : slots_) {
    if (slot.no_new_place && *slot.no_new_place <= now_) {
      slot.no_new_place.reset();
      plan_soon("return of " + to_string(id));
    }
    if (!slot.excluded || *slot.excluded > now_)
      continue;
    if (slot.asked_back) {
      exclude(id, "it does not say what it holds");
      if (view_.now == waiting) // perhaps for what this slot holds
        plan_soon(trigger_);
    } else {
      slot.asked_back = true;
      exclude_until(slot, now_ + options_.request_limit);
      send(id, abort_generation{{0}}); // no generation: only asks for the inventory
    }
  }
  find_next_return();
}

void conductor::machine::find_next_return() {
  next_return_.reset();
  for (const auto& [id, slot] : slots_)
    for (const auto& t : {slot.excluded, slot.no_new_place})
      if (t)
        look_again_at(*t);
}

bool conductor::machine::participates_in_next(const slot_id& slot) const {
  return std::ranges::any_of(next_->what.target.participants, [&](const auto& p) { return p.slot == slot; });
}

bool conductor::machine::is_rank_of_next(const slot_id& slot) const {
  const auto& target = next_->what.target;
  for (std::uint32_t r = 0; r < target.ranks(); ++r)
    if (target.participants[r].slot == slot)
      return true;
  return false;
}

double conductor::machine::longest_step_ms() const {
  const auto evaluation = specification_.evaluate_every > 0
                              ? 1 + specification_.data.validation / specification_.global_batch
                              : std::uint64_t{0};
  return view_.step_ms * static_cast<double>(1 + evaluation);
}

milliseconds conductor::machine::progress_limit() const {
  const auto usual = 9 * view_.step_ms + longest_step_ms();
  return std::max(options_.progress_limit, milliseconds(static_cast<std::int64_t>(usual))) *
         (1 << std::min(stuck_, 10));
}

void conductor::machine::on(const tick&) {
  ask_back();
  if (plan_at_ && *plan_at_ <= now_) {
    plan_at_.reset();
    const bool news = std::exchange(news_, false);
    if (view_.now == running) {
      ask_planner();
      if (!news)
        trigger_ = "the planning interval's end";
      plan_at_ = now_ + milliseconds(specification_.planning_interval_ms);
    } else if (view_.now == waiting) {
      plan_now(trigger_);
    } else {
      plan_after_change_ = true;
    }
  }
  if (const auto moment = moment_to_secure(); moment && *moment <= now_) {
    if (view_.now == readying)
      give_up_next("the notices to those who alone hold a stage end before all are prepared");
    secure();
  }
  if (limit_ && *limit_ <= now_)
    limit_passed();
}

void conductor::machine::limit_passed() {
  if (view_.now == running) {
    const auto limit = progress_limit();
    ++stuck_;
    abort_current("no progress within " + text_of_duration(limit));
    return;
  }
  if (view_.now == planning) { // the planner was restarted or is slow, or planning was put off
    ask_planner();
    limit_ = now_ + options_.request_limit;
    return;
  }
  if (view_.now == stopping) {
    if (const auto moment = last_moment(); can_be_moved() && moment && *moment <= now_)
      return abort_current("the step outlasts the notice to those who alone hold a stage");
    ++stuck_;
    abort_current("the generation did not stop in time");
    return;
  }
  if (view_.now == finishing) { // a keeper did not say its digests, or did not write: ask again
    limit_.reset();
    digests_asked_ = false;
    writing_.reset();
    check_done();
    return;
  }
  if ((view_.now == aborting || view_.now == deciding) && now_ < *stall_began_ + progress_limit() &&
      only_holder_is_awaited()) {
    log(severity::information, "waiting for the answer of one who alone holds a stage");
    limit_ = *stall_began_ + progress_limit();
    return;
  }
  limit_.reset(); // whatever comes of it sets its own
  const auto late = awaited_;
  const auto why = [during = to_string(view_.now)](const slot_id& slot) {
    return "no answer from " + to_string(slot) + " while " + during;
  };
  if (view_.now == readying) { // g is healthy, whoever of its ranks does not answer
    for (const auto& slot : late)
      refuse_new_place(slot, why(slot));
    return give_up_next(why(*late.begin()));
  }
  for (const auto& slot : late) {
    exclude(slot, why(slot));
    missing(slot, why(slot)); // also if the first has ended the phase: this one may have a place in what goes on
  }
}

void conductor::machine::open_record(const std::string& why) {
  if (!record_.trigger.empty())
    return;
  record_.trigger = why.empty() ? "start" : why;
  record_.at = now_;
  record_lost_ = 0;
}

void conductor::machine::close_record_of_active() {
  if (record_.active_ms >= 0)
    close_record();
}

void conductor::machine::learn_from_record() {
  if (record_.plans != 1)
    return;
  measured_change x;
  x.busiest_bytes = record_busiest_bytes_;
  x.transfer_ms = record_.ready_ms - (record_running_ ? record_.stopped_ms : record_.prepared_ms);
  x.activate_ms = record_.active_ms - record_.ready_ms;
  x.ranks = current_->grid.ranks();
  if (!record_running_ && record_.decided_ms >= 0 && !record_.waited) { // else PREPARE also loaded the data
    x.settle_ms = record_.decided_ms;
    x.lost = record_lost_;
    x.plan_ms = record_.planned_ms - record_.decided_ms;
    x.prepare_ms = record_.prepared_ms - record_.planned_ms;
  }
  meter_.learn(x);
}

void conductor::machine::close_record() {
  const auto closed = std::exchange(record_, {});
  if (closed.active_ms < 0)
    return; // nothing changed
  ++view_.counts[static_cast<std::size_t>(closed.kind)];
  view_.changes.push_back(closed);
  if (view_.changes.size() > changes_kept)
    view_.changes.pop_front();
}

conductor::conductor(job_id job, job_specification specification, model_facts facts, conductor_options options,
                     const secret_key& secret) :
    machine_(std::make_unique<machine>(job, std::move(specification), std::move(facts), options, secret)) {}

conductor::~conductor() = default;

std::vector<effect> conductor::handle(time_point now, const conductor_event& x) {
  return machine_->handle(now, x);
}

std::optional<time_point> conductor::deadline() const {
  return machine_->deadline();
}

const job_view& conductor::view() const {
  return machine_->view();
}

std::vector<effect> conductor::last_will() {
  return machine_->last_will();
}

std::string conductor::how_to_go_on() const {
  return machine_->how_to_go_on();
}

bool conductor::writes(const slot_id& keeper) const {
  return machine_->writes(keeper);
}

} // namespace parcae
