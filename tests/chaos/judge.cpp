#include "tests/chaos/judge.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace parcae {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr auto notice_of_silence = 5s; // 2.5 s, and what a busy machine takes
constexpr auto return_window = 10s;    // of a manager: 5 s from the first one on that is back, and the same

clock::time_point moment(std::int64_t microseconds) {
  return clock::time_point(std::chrono::microseconds(microseconds));
}

std::string instance_of(const std::string& slot) {
  return slot.substr(0, slot.find('/'));
}

} // namespace

bool name_was_taken(std::string_view log) {
  return log.find("a living instance has that name") != log.npos;
}

double models_of(const job_status& job, std::string_view instance) {
  const auto places = std::ranges::count(job.grid, instance, instance_of);
  return places == 0 ? 0 : static_cast<double>(places) / job.depth;
}

std::string judge::cause_of_loss(const member& x, time_point noticed, time_point until) const {
  const auto* found = x.last_deed([&](const deed& y) {
    if (y.to == time_point::max())
      return y.from <= until;
    auto last = y.to + notice_of_silence; // when what comes of it is noticed at the latest
    for (const auto& [from, to] : away_)
      if (from <= last)
        last = std::max(last, to + return_window);
    return y.from <= until && last >= noticed;
  });
  return found ? found->what : std::string();
}

void judge::begin() {
  grids_.clear();
  bases_.clear();
  protected_.clear();
  changed_to_ = 0;
}

void judge::look(const status_reply& x, const job_status& job) {
  for (const auto& instance : x.instances)
    check_loss(instance);
  if (!job.grid.empty())
    grids_[job.generation] = {job.width, job.depth, job.grid};
  for (const auto& link : job.chain)
    bases_[link.by.value] = link.base;
  for (const auto& change : job.changes)
    check_change(job, change);
  protected_.emplace_back(clock::now(), job.protected_steps);
  if (protected_.size() > 2000)
    protected_.pop_front();
}

/// A living instance must not be given up.
void judge::check_loss(const instance_status& x) {
  if (x.lost_at_us < 0 || !lost_lives_.insert({x.name, x.incarnation}).second)
    return;
  const auto at = moment(x.lost_at_us);
  if (cause_of_loss(members_.at(x.name), at, at).empty())
    faults_.push_back(fmt::format("{} was declared lost, {:.2f} s after the start, though nothing had been done to it",
                                  x.name, std::chrono::duration<double>(at - start_).count()));
}

/// The newest generation before that one which committed a step, as that one's base and the steps lost say; 0: none.
/// Who held something in an earlier one gave it up by then. If all steps of it are lost, the job's chain has it no
/// more.
std::uint64_t judge::last_trained(const job_status& job, std::uint64_t before, std::uint64_t lost) const {
  const auto began = std::ranges::find(job.chain, generation{before}, &chain_link::by);
  const auto reached = began == job.chain.end() ? UINT64_MAX : began->base + lost;
  const auto next = std::make_reverse_iterator(bases_.lower_bound(before));
  const auto found = std::find_if(next, bases_.rend(), [&](const auto& y) { return y.second < reached; });
  return found == bases_.rend() ? 0 : found->first;
}

/// Committed steps may be lost only with all who held a stage.
void judge::check_change(const job_status& job, const change_status& x) {
  ++sums_.changes;
  sums_.replayed += x.replayed_steps;
  // The one in progress when a generation was aborted: of the one before, and of each that began during the change.
  const auto aborted = std::ranges::count_if(
      job.chain, [&](const auto& link) { return link.by.value >= changed_to_ && link.by.value < x.to; });
  const std::uint64_t dropped =
      x.decided_ms >= 0 ? static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(1, aborted)) : 0;
  changed_to_ = x.to;
  if (x.active_ms >= 0)
    bases_.try_emplace(x.to, 0);
  if (x.replayed_steps <= dropped)
    return;
  const auto lost = x.replayed_steps - dropped;
  sums_.lost += lost;
  ++sums_.losses;
  const auto before = grids_.find(last_trained(job, x.to, lost));
  auto text = fmt::format("{} committed steps lost, change to generation {} after {}", lost, x.to, x.trigger);
  if (before == grids_.end())
    return news_.push_back(text + "; the grid before was too short-lived to be seen");
  const auto at = moment(x.at_us);
  std::string cause;
  for (std::uint32_t stage = 0; stage < before->second.depth && cause.empty(); ++stage) {
    std::string all;
    for (std::uint32_t d = 0; d < before->second.width; ++d) {
      const auto holder = instance_of(before->second.slots.at(d * before->second.depth + stage));
      const auto done = cause_of_loss(members_.at(holder), at, clock::now());
      if (done.empty()) {
        all.clear();
        break;
      }
      all += fmt::format(" {} ({})", holder, done);
    }
    if (!all.empty())
      cause = fmt::format("; stage {} lost all its holders:{}", stage, all);
  }
  news_.push_back(text + cause);
  if (cause.empty())
    faults_.push_back(text + ", though every stage had a holder that nothing had been done to");
  check_depth(job, x, text);
  protected_.clear(); // what was kept of a later version is void
}

/// What the keepers had is not lost with others.
void judge::check_depth(const job_status& job, const change_status& x, const std::string& text) {
  const auto began = std::ranges::find(job.chain, generation{x.to}, &chain_link::by);
  const auto at = moment(x.at_us);
  for (const auto& [name, y] : members_)
    if (y.keeper && !cause_of_loss(y, at, clock::now()).empty())
      return;
  for (const auto& [when, steps] : protected_)
    if (when < at && began != job.chain.end() && steps > began->base)
      return faults_.push_back(
          fmt::format("{}, down to version {}, though the keepers had version {}", text, began->base, steps));
}

} // namespace parcae
