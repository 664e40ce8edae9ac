#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>

namespace parcae {

using enum phase;

namespace {

constexpr std::size_t decisions_kept = 100;
constexpr std::size_t causes_named = 8; // of a change
constexpr std::string_view cause_separator = "; ";
constexpr std::string_view more_causes = "; and more";

} // namespace

void conductor::machine::add_cause(std::string& to, const std::string& why) {
  if (to == why)
    return;
  std::size_t named = 0;
  for (std::size_t begin = 0; begin < to.size(); ++named) {
    const auto end = std::min(to.find(cause_separator, begin), to.size());
    if (to.compare(begin, end - begin, why) == 0)
      return;
    begin = end + cause_separator.size();
  }
  if (named < causes_named)
    to += (to.empty() ? "" : std::string(cause_separator)) + why;
  else if (!to.ends_with(more_causes))
    to += more_causes;
}

void conductor::machine::plan_soon(std::string why) { // a copy: it may be trigger_
  if (!std::exchange(news_, true))
    trigger_.clear(); // the last one's
  add_cause(trigger_, why);
  if (view_.now == running || view_.now == waiting)
    plan_at_ = plan_at_ ? std::min(*plan_at_, now_ + options_.collect) : now_ + options_.collect;
  else
    plan_after_change_ = true;
}

void conductor::machine::plan_now(const std::string& why) {
  trigger_ = why;
  next_.reset();
  current_.reset();
  for (auto& [id, slot] : slots_) // was for lack of room beside a generation
    slot.no_new_place.reset();
  if (view_.now != planning)
    enter(planning);
  update_protection();
  if (final_is_protected()) {
    finish();
  } else if (usable_slots() == 0) {
    const bool loading = std::ranges::any_of(
        slots_, [](const auto& x) { return !x.second.keeper && !x.second.loaded && !x.second.excluded; });
    wait_for_slots(loading ? loading_data : "waiting for instances");
    save_what_leaves();
  } else if (restarts_ > quick_restarts) {
    ++plan_request_; // no answer under way counts
    limit_ = now_ + options_.exclusion * (1 << std::min(restarts_ - quick_restarts - 1, 5));
  } else {
    ask_planner();
    limit_ = now_ + options_.request_limit;
  }
}

void conductor::machine::ask_planner() {
  const auto costs = steps_.costs(facts_.costs);
  situation now{usable_slots(),
                costs,
                {},
                {},
                false,
                static_cast<std::uint32_t>(keepers().size()),
                meter_.figures(),
                slot_bytes(),
                steps_.measured(specification_, costs, platform()),
                platform()};
  if (last_grid_) {
    now.current = {last_grid_->width, last_grid_->depth};
    now.left.assign(last_grid_->depth, 0);
    for (std::uint32_t rank = 0; rank < last_grid_->ranks(); ++rank)
      if (const auto slot = slots_.find(last_grid_->participants[rank].slot);
          slot != slots_.end() && slot->second.usable())
        ++now.left[last_grid_->stage_of(rank)];
    now.running = view_.now == running;
  }
  effects_.push_back(request_plan{++plan_request_, std::move(now)});
}

std::map<std::string, conductor::machine::shared_machine> conductor::machine::machines() const {
  std::map<std::string, shared_machine> result;
  for (const auto& [id, slot] : slots_)
    if (slot.usable() && !slot.machine.id.empty()) {
      auto& x = result[slot.machine.id];
      ++x.slots;
      x.facts = slot.machine;
    }
  return result;
}

std::uint64_t conductor::machine::slot_bytes() const {
  std::uint64_t least = 0;
  const auto consider = [&](std::uint64_t bytes) {
    if (bytes > 0)
      least = least == 0 ? bytes : std::min(least, bytes);
  };
  for (const auto& [id, slot] : slots_)
    if (slot.usable())
      consider(slot.slot_bytes);
  for (const auto& [id, x] : machines()) // each node on it may think that it has all of it
    consider(x.facts.bytes / x.slots);
  return least;
}

platform_cost conductor::machine::platform() const {
  platform_cost result;
  result.bytes_per_ms = meter_.figures().link_bytes_per_ms; // as transfers have shown
  result.crowding = steps_.crowding();
  // All ranks wait for the slowest: the machine with most slots for its cores says how fast they are.
  double most = 0;
  for (const auto& [id, x] : machines())
    if (const auto share = static_cast<double>(x.slots) / x.facts.cores; x.facts.cores > 0 && share > most) {
      most = share;
      result.machine_slots = x.slots;
      result.machine_cores = static_cast<double>(x.facts.cores) / specification_.threads;
    }
  return result;
}

std::uint32_t conductor::machine::side_by_side(const placement& grid) const {
  std::map<std::string, std::uint32_t> ranks;
  std::uint32_t most = 1;
  for (std::uint32_t rank = 0; rank < grid.ranks(); ++rank)
    if (const auto slot = slots_.find(grid.participants[rank].slot);
        slot != slots_.end() && !slot->second.machine.id.empty())
      most = std::max(most, ++ranks[slot->second.machine.id]);
  return most;
}

std::uint32_t conductor::machine::usable_slots() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(slots_, [](const auto& x) { return x.second.usable(); }));
}

void conductor::machine::on(const plan_chosen& x) {
  if (x.request != plan_request_ || (view_.now != planning && view_.now != running))
    return;
  note_decision(x);
  view_.configurations = x.all;
  if (view_.now == planning)
    plan_from_inventory(x.choice);
  else
    plan_while_running(x.choice);
}

void conductor::machine::note_decision(const plan_chosen& x) {
  ++view_.decision_count;
  view_.decisions.push_back({now_, view_.now == planning ? trigger_of_record() : trigger_, x.note, {}, -1});
  if (view_.decisions.size() > decisions_kept)
    view_.decisions.pop_front();
}

void conductor::machine::plan_while_running(const configuration& choice) {
  if (choice.width == 0 || choice.width * choice.depth > usable_slots())
    return; // goes on while it can
  bool all_stay = true, refused = false;
  for (const auto& [id, rank] : current_->rank_of) {
    const auto slot = slots_.find(id);
    all_stay &= slot != slots_.end() && !slot->second.leaving && !slot->second.excluded;
    refused |= slot != slots_.end() && slot->second.no_new_place.has_value();
  }
  if (all_stay && refused)
    return; // what failed beside this generation would fail again
  if (all_stay && choice.width == current_->grid.width && choice.depth == current_->grid.depth)
    return;
  close_record_of_active();
  begin_change(choice, running_version(current_->g));
  enter_waiting_for(readying, participants_of_next(), options_.prepare_limit);
}

void conductor::machine::plan_from_inventory(const configuration& choice) {
  if (choice.width == 0) {
    if (usable_slots() > 0) // what fits is also a matter of what is known of costs and memory by then
      plan_at_ = now_ + milliseconds(specification_.planning_interval_ms);
    return wait_for_slots(choice.reason);
  }
  if (choice.width * choice.depth > usable_slots())
    return plan_now(trigger_); // someone left while the planner thought
  const auto from = newest_held(false);
  if (from.steps < chain_.newest().steps) {
    // What fails once need not have lost what it holds: steps are given up only after it failed repeatedly.
    if (newest_held(true).steps > from.steps)
      return wait_for_slots("waiting for the return of a slot that holds newer state than the others");
    if (from.steps < view_.checkpoint.steps)
      return read_checkpoint();
    const auto lost = chain_.newest().steps - from.steps;
    log(severity::warning,
        std::to_string(lost) + " steps are lost: the newest version all layers are held at is " + to_string(from));
    chain_.cut(from.steps);
    checkpoint_failed_ = 0;
    view_.replayed_steps += lost;
    record_.replayed_steps += lost;
    view_.steps_done = from.steps;
    journal("go back to version " + to_string(from));
    protect_all();                        // snapshots that are on their way, or to be sent again, are void
    confirmed_ = view_.protected_version; // what was confirmed before may be void
    confirm_to_keepers(false);
  }
  for (auto& [id, slot] : slots_) // what is needed next may be another checkpoint
    slot.read.reset();
  begin_change(choice, from);
  enter_waiting_for(preparing, participants_of_next(), options_.prepare_limit);
}

version conductor::machine::newest_held(bool hoping) const {
  std::vector<holder> holders;
  for (const auto& [id, slot] : slots_)
    if (!slot.excluded ||
        (hoping && slot.excluded != time_point::max() && slot.back_off <= returns_awaited * options_.exclusion))
      holders.push_back({id, slot.keeper, slot.held});
  return newest_complete(chain_, static_cast<std::uint32_t>(facts_.state_bytes.size()), holders);
}

void conductor::machine::wait_for_slots(const std::string& why) {
  enter(waiting);
  record_.waited = true;
  view_.problem = why;
  if (std::exchange(plan_after_change_, false)) // something happened while the planner thought
    plan_soon(trigger_);
}

void conductor::machine::begin_change(const configuration& choice, const version& from) {
  if (record_.trigger.empty())
    open_record(trigger_);
  std::vector<candidate> candidates;
  for (const auto& [id, slot] : slots_) {
    if (slot.excluded)
      continue;
    const bool gets_no_place = slot.leaving || (!slot.keeper && !slot.usable());
    candidates.push_back({slot.where, {}, slot.keeper, gets_no_place, slot.age});
    if (current_ && from == running_version(current_->g)) {
      if (const auto rank = current_->rank_of.find(id); rank != current_->rank_of.end()) {
        const auto stage = current_->grid.stage_of(rank->second);
        for (auto l = current_->grid.first_layer[stage]; l < current_->grid.first_layer[stage + 1]; ++l)
          candidates.back().held.push_back({l, from});
      }
    } else {
      candidates.back().held = slot.held;
    }
  }
  change next;
  next.plan = plan_change(choice.width, choice.first_layer, candidates, from, facts_.state_bytes,
                          last_grid_ ? &*last_grid_ : nullptr);
  newest_ = {newest_.value + 1};
  next.what = {newest_,        token_of(secret_, "generation", {job_.value, newest_.value}),
               job_,           specification_,
               data_digest_,   next.plan.target,
               next.plan.moves};
  next.checksum = checksum_of(next.what);
  next_ = std::move(next);
  base_ = from;
  record_.to = newest_;
  record_.configuration = std::to_string(choice.width) + "×" + std::to_string(choice.depth);
  record_.kind = next_->plan.kind;
  record_.bytes = next_->plan.bytes;
  record_.planned_ms = ms_between(record_.at, now_);
  record_running_ = current_.has_value();
  record_busiest_bytes_ = static_cast<double>(busiest_link_bytes(next_->plan.moves, facts_.state_bytes));
  if (++record_.plans == 1)
    record_.predicted_ms = predicted_stall_ms();
  if (!view_.decisions.empty())
    view_.decisions.back().to = newest_;
  view_.problem.clear();
  log(severity::information, "generation " + std::to_string(newest_.value) + ": " + record_.configuration + " after " +
                                 record_.trigger + "; " + choice.reason + "; " + next_->plan.reason);
  const auto prepare_all = std::make_shared<const command>(next_->what);
  for (const auto& p : next_->what.target.participants)
    send(p.slot, prepare_all);
}

double conductor::machine::predicted_stall_ms() const {
  if (!record_running_ && !stall_began_)
    return 0; // nothing ran before
  return cost_of(meter_.figures(), record_running_ ? std::nullopt : std::optional(record_lost_),
                 next_->what.target.ranks(), record_busiest_bytes_)
      .stall_ms();
}

std::set<slot_id> conductor::machine::participants_of_next() const {
  std::set<slot_id> all;
  for (const auto& p : next_->what.target.participants)
    all.insert(p.slot);
  return all;
}

} // namespace parcae
