#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace parcae {

using enum phase;

namespace {

/// Unique among all jobs of all managers, and a good name for a folder.
std::string run_name(const std::string& job, std::uint64_t number) {
  std::string name = job.substr(0, 40);
  for (auto& c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '-')
      c = '_';
  char suffix[10];
  std::snprintf(suffix, sizeof suffix, "-%08x", static_cast<unsigned>(number)); // enough to be unique
  return name + suffix;
}

std::string listed(const std::vector<std::uint32_t>& layers) {
  std::string result;
  for (auto layer : layers)
    result += (result.empty() ? "" : ", ") + std::to_string(layer);
  return result;
}

} // namespace

milliseconds conductor::machine::disk_limit() const {
  const auto bytes = std::accumulate(facts_.state_bytes.begin(), facts_.state_bytes.end(), std::uint64_t{0});
  return options_.transfer_limit + milliseconds(bytes / 10'000);
}

bool conductor::machine::writes(const slot_id& keeper) const {
  if (writing_ && writing_->awaited.contains(keeper))
    return true;
  // What was asked for comes after the one that is being written.
  const auto slot = slots_.find(keeper);
  return slot != slots_.end() && slot->second.keeper && writing_ && checkpoint_asked_ &&
         view_.protected_version > std::max(view_.checkpoint, writing_->at);
}

void conductor::machine::on(const checkpoint_wanted&) {
  checkpoint_asked_ = view_.protected_version > view_.checkpoint;
  write_checkpoint();
}

void conductor::machine::write_checkpoint() {
  const auto at = view_.protected_version;
  if (writing_ && writing_->limit <= now_) { // a keeper forgot it, as one whose executor was replaced does
    log(severity::warning, "the checkpoint of step " + std::to_string(writing_->at.steps) + " is given up");
    writing_.reset();
  }
  if (writing_ || at <= view_.checkpoint)
    return;
  const auto every = specification_.checkpoint_every;
  const auto periods = [&](std::uint64_t steps) { return (steps - std::min(steps, view_.checkpoint.steps)) / every; };
  // After one that failed, when the next is due.
  const bool due = every > 0 && periods(at.steps) > periods(checkpoint_failed_);
  if (!due && !checkpoint_asked_ && !final_is_protected())
    return;
  const auto run = run_name(specification_.name, token_of(secret_, "checkpoint", {job_.value}).low);
  writing_ = writing{at, run + "/" + to_string(at), now_ + disk_limit(), {}, {}, {}, {}, {}};
  // Until this one is whole on all keepers another one has to be.
  const auto others = std::min<std::size_t>(on_disk_.size(), specification_.checkpoints_kept - 1);
  const std::vector<std::uint64_t> kept(on_disk_.end() - static_cast<std::ptrdiff_t>(others), on_disk_.end());
  writing_->command = {job_, at, writing_->name, specification_, data_digest_, kept};
  for (const auto& [id, slot] : slots_)
    if (slot.keeper) {
      send(id, writing_->command);
      writing_->awaited.insert(id);
    }
  checkpoint_asked_ = false;
  view_.checkpoint_problem.clear();
}

void conductor::machine::hear(const slot_id& from, slot_state&, const checkpointed& x) {
  if (!writing_ || x.at != writing_->at || !writing_->awaited.contains(from))
    return;
  if (x.problem.empty()) {
    writing_->layers.insert(x.layers.begin(), x.layers.end());
    if (!x.layers.empty())
      writing_->folders.emplace_back(from, x.folder);
  } else {
    writing_->problem = to_string(from) + ": " + x.problem;
  }
  share_written(from);
}

void conductor::machine::share_written(const slot_id& keeper) {
  if (!writing_ || writing_->awaited.erase(keeper) == 0 || !writing_->awaited.empty())
    return;
  const auto done = *std::exchange(writing_, std::nullopt);
  const auto name = "checkpoint of step " + std::to_string(done.at.steps);
  if (done.layers.size() == facts_.state_bytes.size() && chain_.valid(done.at)) {
    view_.checkpoint = done.at;
    view_.checkpoint_folders = done.folders;
    checkpoint_name_ = done.name;
    on_disk_.push_back(done.at.steps);
    while (on_disk_.size() > specification_.checkpoints_kept)
      on_disk_.pop_front();
    journal(name + " is on disk: " + done.name);
  } else {
    view_.checkpoint_problem =
        "no " + name + ": " + (done.problem.empty() ? "not all layers were written" : done.problem);
    log(severity::warning, view_.checkpoint_problem);
    if (!done.problem.empty()) // else a keeper was lost
      checkpoint_failed_ = done.at.steps;
    if (view_.now == finishing) { // a result is not given up for a full disk
      view_.problem = view_.checkpoint_problem + "; it is tried again, or `parcae cancel` the job";
      limit_ = now_ + options_.request_limit;
    }
    return;
  }
  write_checkpoint(); // if the next was due meanwhile
  check_done();
}

void conductor::machine::read_checkpoint() {
  const auto at = view_.checkpoint;
  const auto name = "the checkpoint of step " + std::to_string(at.steps);
  std::set<slot_id> awaited;
  std::string problems;
  bool damaged = false, asked = false;
  std::vector<bool> held(facts_.state_bytes.size());
  for (auto& [id, slot] : slots_) {
    if (!slot.keeper || slot.excluded)
      continue;
    if (!slot.read && !std::exchange(slot.reading, true))
      send(id, restore{job_, at, checkpoint_name_, specification_});
    if (slot.reading)
      awaited.insert(id);
    asked = true;
    if (slot.read && !slot.read->problem.empty()) {
      problems += (problems.empty() ? "" : "; ") + slot.read->problem;
      damaged |= slot.read->damaged;
    }
    for (const auto& x : slot.held)
      if (x.at == at && x.layer < held.size())
        held[x.layer] = true;
  }
  if (!awaited.empty()) {
    enter_waiting_for(waiting, std::move(awaited), disk_limit());
    view_.problem = "the keepers read " + name;
    return;
  }
  std::vector<std::uint32_t> lost;
  for (std::uint32_t layer = 0; layer < held.size(); ++layer)
    if (!held[layer])
      lost.push_back(layer);
  // Whoever has the rest of what this job wrote may come back. What the user named must be there.
  if (damaged || (at.by == generation{} && asked))
    return end_job(false,
                   "layers " + listed(lost) + " of " + name + " are lost: " +
                       (problems.empty() ? "no keeper has them; start those that do, and submit again" : problems));
  wait_for_slots("waiting for a keeper that has layers " + listed(lost) + " of " + name);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const restored& x) {
  if (x.job != job_ || x.at != view_.checkpoint || !std::exchange(slot.reading, false))
    return;
  slot.read = x;
  if (view_.now == waiting)
    answered(from);
}

} // namespace parcae
