#include "actors/conductor/checkpoint_ledger.hpp"

#include "protocols/base/text.hpp"

#include <algorithm>
#include <cstdio>

namespace parcae {

namespace {

/// Unique among all jobs of all managers, and a good name for a folder.
std::string run_name(const conducted_job& job) {
  std::string name = job.specification.name.substr(0, 40);
  for (auto& c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '-')
      c = '_';
  char suffix[10];
  std::snprintf(suffix, sizeof suffix, "-%08x", // enough to be unique
                static_cast<unsigned>(token_of(job.secret, "checkpoint", {job.id.value}).low));
  return name + suffix;
}

} // namespace

checkpoint_view checkpoint_of(const durable_state& x) {
  checkpoint_view result;
  result.checkpoint = x.checkpoint;
  result.checkpoint_steps = x.checkpoint.steps;
  for (const auto& [keeper, folder] : x.checkpoint_folders)
    result.checkpoint_folders.push_back({keeper.instance, folder});
  return result;
}

checkpoint_ledger::checkpoint_ledger(const conducted_job& job) : job_(job) {
  const auto& durable = job.durable;
  const bool wrote = durable.checkpoint != version{};
  newest_ = wrote ? durable.checkpoint : version{job.specification.resume.steps, {}};
  folder_ = wrote ? durable.checkpoint_name : job.specification.resume.folder;
  folders_ = durable.checkpoint_folders;
  on_disk_.assign(durable.checkpoints_on_disk.begin(), durable.checkpoints_on_disk.end());
}

durable_state checkpoint_ledger::durable() const {
  durable_state result;
  result.checkpoint = newest_;
  result.checkpoint_name = folder_;
  result.checkpoint_folders = folders_;
  result.checkpoints_on_disk.assign(on_disk_.begin(), on_disk_.end());
  return result;
}

checkpoint_view checkpoint_ledger::view() const {
  auto result = checkpoint_of(durable());
  result.checkpoint_problem = problem_;
  return result;
}

bool checkpoint_ledger::is_due(time_point now, const version& held) const {
  const std::chrono::milliseconds time(job_.specification.checkpoint_every_ms);
  if (time.count() > 0 && since_ && now - *since_ >= time && held != version{})
    return true;
  const auto every = job_.specification.checkpoint_every;
  const auto periods = [&](std::uint64_t steps) { return (steps - std::min(steps, newest().steps)) / every; };
  // After one that failed, when the next is due.
  return every > 0 && periods(held.steps) > periods(failed_);
}

const checkpoint* checkpoint_ledger::begin(time_point now, const version& held, const std::string& data_digest,
                                           std::set<slot_id> keepers, bool may_be_due) {
  const auto& job = job_.specification;
  const bool wanted = asked_ && *asked_ <= held;
  if (!since_)
    since_ = now;
  if (writing_ || has(held) || (!wanted && held.steps != job.steps && !(may_be_due && is_due(now, held))))
    return nullptr;
  since_ = now;
  // Until this one is whole on all keepers another one has to be.
  const auto others = std::min<std::size_t>(on_disk_.size(), job.checkpoints_kept - 1);
  writing_.emplace();
  writing_->command = {.job = job_.id,
                       .at = held,
                       .name = run_name(job_) + "/" + to_string(held),
                       .specification = job,
                       .data_digest = data_digest,
                       .kept = {on_disk_.end() - static_cast<std::ptrdiff_t>(others), on_disk_.end()}};
  writing_->limit = now + job_.transfer_limit(job_.state_bytes(0, job_.layers()));
  writing_->awaited = std::move(keepers);
  if (wanted)
    asked_.reset();
  return &writing_->command;
}

std::optional<version> checkpoint_ledger::give_up_late(time_point now) {
  if (!writing_ || writing_->limit > now)
    return {};
  const auto at = writing_->command.at;
  std::string late;
  for (const auto& keeper : writing_->awaited)
    late += (late.empty() ? "" : ", ") + to_string(keeper);
  problem_ = "no checkpoint of step " + std::to_string(at.steps) + ": not written in time by " + late +
             (writing_->problem.empty() ? "" : "; " + writing_->problem);
  writing_.reset();
  return at;
}

std::optional<checkpoint_ledger::outcome> checkpoint_ledger::hear(const slot_id& from, const checkpointed& x,
                                                                  const commit_chain& chain) {
  if (!writing_ || x.at != writing_->command.at || !writing_->awaited.contains(from))
    return {};
  if (!x.problem.empty()) {
    writing_->problem = to_string(from) + ": " + x.problem;
  } else if (!x.layers.empty()) {
    writing_->layers.insert(x.layers.begin(), x.layers.end());
    writing_->folders.push_back({from, x.folder});
  }
  return lose(from, chain);
}

std::optional<checkpoint_ledger::outcome> checkpoint_ledger::lose(const slot_id& keeper, const commit_chain& chain) {
  if (!writing_ || writing_->awaited.erase(keeper) == 0 || !writing_->awaited.empty())
    return {};
  auto done = *std::exchange(writing_, std::nullopt);
  const auto at = done.command.at;
  const auto name = "checkpoint of step " + std::to_string(at.steps);
  if (done.layers.size() < job_.layers() || !chain.valid(at)) {
    problem_ = "no " + name + ": " +
               (done.problem.empty()
                    ? "keepers have " + std::to_string(done.layers.size()) + " of " + std::to_string(job_.layers()) +
                          " layers of it: others were lost, or had dropped it for a newer version"
                    : done.problem);
    if (!done.problem.empty()) // else a keeper was lost
      failed_ = at.steps;
    return outcome{false, problem_};
  }
  newest_ = at;
  problem_.clear();
  folders_ = std::move(done.folders);
  folder_ = done.command.name;
  on_disk_.push_back(at.steps);
  while (on_disk_.size() > job_.specification.checkpoints_kept)
    on_disk_.pop_front();
  return outcome{true, name + " is on disk: " + folder_};
}

std::optional<time_point> checkpoint_ledger::limit() const {
  return writing_ ? std::optional(writing_->limit) : std::nullopt;
}

const checkpoint* checkpoint_ledger::repeat(const slot_id& keeper) const {
  return writing_ && writing_->awaited.contains(keeper) ? &writing_->command : nullptr;
}

bool checkpoint_ledger::needs(const slot_id& keeper) const {
  return writing_ && (writing_->awaited.contains(keeper) || (asked_ && *asked_ > writing_->command.at));
}

std::string checkpoint_ledger::how_to_go_on() const {
  if (writing_)
    return "; the keepers write step " + std::to_string(writing_->command.at.steps) + " to " + writing_->command.name +
           " in their folders: go on with `parcae submit --resume` of that";
  if (newest().steps == 0)
    return "";
  const auto folder = folders_.empty() ? folder_ : folders_.front().folder;
  return "; go on with: parcae submit --resume " + folder;
}

} // namespace parcae
