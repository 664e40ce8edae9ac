#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <filesystem>

// What comes back: a connection, a life whose loss was declared, this process itself after it stood still. And what is
// to be done before this process goes for good.

namespace parcae {

using enum phase;

namespace {

constexpr std::size_t lives_remembered = 1000;
constexpr milliseconds late{1'000}; ///< a tick; a busy machine is not that late

} // namespace

// --- a connection
// -----------------------------------------------------------------------------------------------------------

void conductor::machine::on(const slot_returned& x) {
  const auto slot = slots_.find(x.slot);
  if (slot == slots_.end())
    return;
  if (limit_)
    limit_ = std::max(*limit_, now_ + options_.request_limit);
  repeat_command(x.slot, slot->second);
}

// Every command may be repeated, and its answer is given again.
void conductor::machine::repeat_command(const slot_id& id, const slot_state& slot) {
  if (slot.keeper) {
    send(id, guard_message());
    confirm_to(id, digests_asked_);
    if (slot.reading)
      send(id, restore{job_, view_.checkpoint, checkpoint_name_, specification_});
    if (writing_ && writing_->awaited.contains(id))
      send(id, writing_->command);
  } else {
    const auto present = keepers();
    send(id, protect{job_, present, pass(id), !present.empty() && !view_.protected_now});
    if (!slot.loaded && !slot.excluded)
      send(id, load{job_, specification_});
  }
  if (slot.excluded && slot.asked_back)
    send(id, abort_generation{{0}});
  const bool is_rank = current_ && current_->rank_of.contains(id);
  if (view_.now == readying && is_rank)
    send(id, activate{current_->g, {current_->base, {}}}); // as while running
  switch (awaited_.contains(id) || view_.now == running ? view_.now : planning) {
  case preparing:
  case readying:
    send(id, next_->what);
    break;
  case stopping:
    send(id, stop{current_->g, stop_is_snapshot_});
    break;
  case transferring:
    send(id, transfer{next_->what.next, base_});
    break;
  case activating:
    send(id, activate{current_->g, base_});
    break;
  case running:
    if (is_rank) // it says that it is active, or how it ended
      send(id, activate{current_->g, {current_->base, {}}});
    break;
  case aborting:
    send(id, abort_generation{current_->g});
    break;
  case clearing:
    send(id, abort_generation{next_->what.next});
    break;
  case deciding:
    send(id, decide{current_->g, current_->decision});
    break;
  case waiting:
  case planning:
  case finishing:
  case ended:
    break;
  }
  if (!slot.keeper && current_ && current_->committed && (view_.now == running || view_.now == readying))
    send(id, release_for(id));
  if (view_.now == waiting && saved_ > view_.protected_version) {
    saved_ = {};
    save_what_leaves();
  }
}

// --- a life
// -----------------------------------------------------------------------------------------------------------

void conductor::machine::note_told(const slot_id& to, const command& what) {
  const auto* p = std::get_if<prepare>(&what);
  const auto* a = std::get_if<activate>(&what);
  if (!p && !a)
    return;
  if (const auto slot = slots_.find(to); slot != slots_.end())
    (p ? slot->second.given.prepared : slot->second.given.activated) = p ? p->next : a->next;
}

void conductor::machine::remember_life(const slot_id& id, const slot_state& slot) {
  if (slot.given.prepared == generation{} && !slot.keeper)
    return; // it never had anything
  lost_lives_.emplace_back(id, slot.given);
  if (lost_lives_.size() > lives_remembered)
    lost_lives_.pop_front();
}

bool conductor::machine::take_back(const slot_id& id, slot_state& slot) {
  const auto known = std::ranges::find(lost_lives_, id, [](const auto& x) { return x.first; });
  if (known == lost_lives_.end())
    return false;
  slot.given = known->second;
  lost_lives_.erase(known);
  if (slot.keeper)
    confirm_to(id, digests_asked_);
  else { // not used before it has answered
    exclude_until(slot, now_ + options_.request_limit);
    slot.asked_back = true;
  }
  // Nothing older than the one it was to compute last is left there, nor newer than the one it prepared last.
  for (const auto g : {slot.given.activated, slot.given.prepared})
    if (g != generation{})
      send(id, abort_generation{g});
  return true;
}

// --- this process
// -----------------------------------------------------------------------------------------------------------

void conductor::machine::notice_standstill(time_point now) {
  auto due = limit_;
  if (plan_at_ && (!due || *plan_at_ < *due))
    due = plan_at_;
  if (!due || now - std::max(*due, now_) < late)
    return;
  // What should have been answered meanwhile may be on its way, or was lost with a connection and will be asked again.
  if (limit_)
    limit_ = std::max(*limit_, now + options_.request_limit);
  for (auto& [id, slot] : slots_)
    if (slot.excluded && slot.asked_back)
      slot.excluded = std::max(*slot.excluded, now + options_.request_limit);
}

void conductor::machine::on(const manager_ends& x) {
  closing_until_ = x.until;
  log(severity::information, "the manager ends: the job stops, and the keepers write what they hold to disk");
}

void conductor::machine::close() {
  const std::string why = "the end of the manager";
  if (now_ >= *closing_until_)
    return end_closed("it took too long");
  if (view_.now == readying)
    give_up_next(why);
  if (view_.now == running) {
    if (keepers().empty())
      return end_closed("there is no keeper");
    trigger_ = why;
    begin_stop(true);
  } else if (view_.now == preparing || view_.now == transferring) {
    clear_next(why);
  }
  // What else is under way leads here.
  if (view_.now == planning)
    enter(waiting);
  if (view_.now == waiting)
    close_waiting();
}

void conductor::machine::close_waiting() {
  view_.problem = "the manager ends";
  if (keepers().empty())
    return end_closed("there is no keeper");
  if (newest_held(true) > view_.protected_version) // perhaps once somebody has answered
    return save_what_leaves();
  if (writing_ || view_.protected_version <= view_.checkpoint) {
    if (!writing_)
      end_closed("");
    return;
  }
  if (checkpoint_failed_ == view_.protected_version.steps)
    return end_closed(view_.checkpoint_problem);
  checkpoint_asked_ = true;
  write_checkpoint();
}

void conductor::machine::end_closed(const std::string& problem) {
  const auto reached = std::max(view_.steps_done, chain_.newest().steps);
  const auto lost = reached - std::min(reached, view_.checkpoint.steps);
  auto text = "stopped at step " + std::to_string(reached);
  if (lost > 0)
    text += "; " +
            (view_.checkpoint.steps > 0 ? "the last " + counted(lost, "step") + " are not kept"
                                        : std::string("nothing is kept")) +
            (problem.empty() ? "" : ": " + problem);
  end_job(false, text + how_to_go_on());
}

std::string conductor::machine::how_to_go_on() const {
  if (writing_)
    return "; the keepers write step " + std::to_string(writing_->at.steps) + " to " + writing_->name +
           " in their folders: go on with `parcae submit --resume` of that";
  if (view_.checkpoint.steps == 0)
    return "";
  const auto folder = view_.checkpoint_folders.empty() ? checkpoint_name_ : view_.checkpoint_folders.front().second;
  return "; go on with: parcae submit --resume " + folder;
}

std::vector<effect> conductor::machine::last_will() {
  effects_.clear();
  if (view_.now == ended)
    return {};
  for (const auto& [id, slot] : slots_)
    if (!slot.keeper) {
      if (current_)
        send(id, abort_generation{current_->g});
      send(id, forget{job_});
    }
  writing_.reset(); // if it is written, it is written again
  checkpoint_asked_ = view_.protected_version > view_.checkpoint;
  write_checkpoint();
  return std::move(effects_);
}

} // namespace parcae
