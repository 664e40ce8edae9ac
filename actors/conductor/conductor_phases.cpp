#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>
#include <cmath>

// What phases begin with, whom they wait for, and until when.

namespace parcae {

using enum phase;

namespace {

/// What has to be over by a moment is given so many times what it is expected to take, and what a busy machine may take
/// to wake all who have a part in it: in a small job that is more than the rest.
constexpr double move_margin = 2;
constexpr milliseconds wake_margin{250};

milliseconds moving(double ms) {
  return milliseconds(static_cast<std::int64_t>(std::ceil(move_margin * ms))) + wake_margin;
}

} // namespace

void conductor::machine::enter(phase to) {
  const auto from = std::exchange(stand_, {to, {}, {}, {}}).now;
  roster_.find_next_return();
  const auto& options = job_.options;
  const auto& current = generations_.current;
  const auto& next = generations_.next;
  switch (to) {
  case recovering: // only in the beginning
    return;
  case waiting:
    return begin_waiting();
  case planning:
    return begin_planning();
  case preparing:
  case readying:
    return ask(next->participants(), next->what, options.prepare_limit);
  case running:
    return begin_running(from);
  case stopping:
    return begin_stopping();
  case clearing:
    return ask(next->participants(), abort_generation{next->what.next}, options.request_limit);
  case aborting:
    return ask(current->ranks(), abort_generation{current->g}, options.request_limit);
  case deciding: {
    auto whom = current->ranks();
    std::erase_if(whom, [&](const auto& x) { return !current->aborted_ranks.contains(*current->rank(x)); });
    return ask(whom, decide{current->g, generations_.ended_by}, options.request_limit, true);
  }
  case transferring:
    return ask(next->participants(), transfer{next->what.next, generations_.base},
               job_.transfer_limit(next->plan.bytes));
  case activating:
    return begin_activating();
  case finishing:
    return begin_finishing();
  case ended:
    generations_.on_grid = false;
  }
}

void conductor::machine::ask(const std::set<slot_id>& whom, command what, milliseconds limit, bool excluded_too) {
  stand_.question = std::make_shared<const command>(std::move(what));
  stand_.limit = now_ + limit;
  for (const auto& id : whom)
    if (const auto* slot = roster_.find(id)) {
      send(id, stand_.question);
      if (!slot->excluded || excluded_too)
        stand_.awaited.insert(id);
    }
  if (stand_.awaited.empty())
    happens(happening::all_answered);
}

void conductor::machine::ask_all_keepers(generation about) {
  std::set<slot_id> whom;
  for (const auto& [id, slot] : roster_.keepers())
    if (!slot.excluded)
      whom.insert(id);
  ask(whom, abort_generation{about}, job_.options.request_limit);
}

void conductor::machine::ask_too(const slot_id& id) {
  send(id, stand_.question);
  stand_.awaited.insert(id);
  stand_.limit = std::max(*stand_.limit, now_ + job_.options.request_limit);
}

void conductor::machine::answered(const slot_id& slot) {
  if (stand_.awaited.erase(slot) > 0 && stand_.awaited.empty())
    happens(happening::all_answered);
}

void conductor::machine::begin_waiting() {
  generations_.on_grid = false;
  changes_.wait();
  fill_keepers();
  for (const auto& [id, slot] : roster_.keepers())
    if (slot.reading && !slot.excluded) {
      stand_.awaited.insert(id);
      stand_.limit = now_ + job_.transfer_limit(job_.state_bytes(0, job_.layers()));
    }
  if (desk_.take_missed()) // something happened while the planner thought
    plan_soon(desk_.trigger());
}

void conductor::machine::begin_planning() {
  generations_.next.reset();
  generations_.current.reset();
  roster_.allow_new_places();
  update_protection();
  if (happens(happening::kept) || (roster_.usable() == 0 && happens(happening::nobody)))
    return;
  if (const auto pause = desk_.pause(job_.options.exclusion); pause > milliseconds(0)) {
    desk_.ask(); // no answer under way counts
    stand_.limit = now_ + pause;
  } else {
    ask_again({});
  }
}

void conductor::machine::begin_running(phase from) {
  watch_progress();
  desk_.at_the_latest(now_ + milliseconds(job_.specification.planning_interval_ms));
  if ((from == activating || from == recovering) && generations_.current->committed)
    first_commit();
  if (desk_.take_missed())
    plan_soon(desk_.trigger());
}

void conductor::machine::begin_stopping() {
  const auto& current = *generations_.current;
  auto whom = current.ranks();
  std::erase_if(whom, [&](const auto& x) { return current.stopped_ranks.contains(x); });
  // Without a generation that takes the state over the keepers do.
  ask(whom, stop{current.g, !generations_.next}, progress_limit(), true);
  watch_notices();
}

void conductor::machine::begin_activating() {
  auto& all = generations_;
  const auto g = all.next->what.next;
  chain_.begin(g, all.base.steps);
  early_end_.reset();
  all.last_grid = all.next->what.target;
  all.last = g;
  all.ended_by = {};
  journal("generation " + std::to_string(g.value) + " begins at version " + to_string(all.base));
  all.current.emplace(g, all.next->what.target, all.base.steps, now_);
  all.on_grid = true;
  course_.begin(*all.last_grid, roster_.side_by_side(*all.last_grid));
  // Those who only sent shards count no longer; those with a place keep what they hold until RELEASE.
  all.next.reset();
  for (const auto& [id, slot] : roster_.keepers())
    send(id, guard_message());
  ask(all.current->ranks(), activate{g, all.base}, job_.options.request_limit);
}

void conductor::machine::begin_finishing() {
  changes_.close();
  forget_readings();
  if (chain_.is_open()) {
    chain_.end(generations_.current->g, final_steps());
    journal("the final version is reached");
  }
  say_what_finishing_waits_for();
  update_protection();
  check_done();
}

double conductor::machine::longest_step_ms() const {
  const auto& job = job_.specification;
  const auto evaluation =
      job.evaluate_every > 0 ? 1 + job.data.validation_samples() / job.global_batch : std::uint64_t{0};
  return course_.step_ms() * static_cast<double>(1 + evaluation);
}

milliseconds conductor::machine::progress_limit() const {
  const auto usual = 9 * course_.step_ms() + longest_step_ms();
  return std::max(job_.options.progress_limit, milliseconds(static_cast<std::int64_t>(usual))) *
         (1 << std::min(course_.stuck(), 10));
}

std::optional<time_point> conductor::machine::last_moment_to_move() const {
  const auto& current = *generations_.current;
  const auto& grid = current.grid;
  std::set<std::uint32_t> stages; // of which somebody leaves
  for (const auto& id : roster_.leaving())
    if (const auto rank = current.rank(id))
      stages.insert(grid.stage_of(*rank));
  std::optional<time_point> earliest;
  for (auto s : stages) {
    std::optional<time_point> end; // when the last replica is gone
    bool stays = false;
    for (std::uint32_t pipeline = 0; pipeline < grid.width; ++pipeline)
      if (const auto* slot = roster_.find(grid.participants[grid.rank(pipeline, s)].slot)) {
        stays = stays || !slot->leaving;
        end = std::max(end, slot->leaving);
      }
    if (stays || !end)
      continue;
    const auto bytes = static_cast<double>(job_.state_bytes(grid.first_layer[s], grid.first_layer[s + 1]));
    const auto moment = *end - moving(cost_of(changes_.figures(), 0, grid.ranks(), bytes).stall_ms());
    earliest = std::min(earliest.value_or(moment), moment);
  }
  return earliest;
}

void conductor::machine::watch_notices() {
  if (stand_.now != stopping)
    return; // all had stopped already
  if (const auto moment = last_moment_to_move(); moment && can_be_moved())
    stand_.limit = std::min(*stand_.limit, *moment);
}

std::optional<time_point> conductor::machine::moment_to_secure() const {
  if (roster_.leaving().empty() || (stand_.now != running && stand_.now != readying) || !roster_.has_keepers() ||
      (stand_.now == running && desk_.has_news() && roster_.usable() > 0))
    return {};
  const auto moment = last_moment_to_move();
  if (!moment)
    return {};
  // The keepers take what all stages hold, and the step in progress ends before, with the evaluation if one comes until
  // then.
  const auto every = job_.specification.evaluate_every;
  const auto steps_to_evaluation = every > 0 ? (every - course_.steps_done() % every) % every : 0;
  const std::chrono::duration<double, std::milli> left = *moment - now_;
  const bool evaluates = static_cast<double>(steps_to_evaluation) * course_.step_ms() < left.count();
  const auto bytes = static_cast<double>(job_.state_bytes(0, job_.layers()));
  return *moment -
         moving(bytes / changes_.figures().link_bytes_per_ms + (evaluates ? longest_step_ms() : course_.step_ms()));
}

} // namespace parcae
