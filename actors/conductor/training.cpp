#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <cmath>

// Running, stopping: a generation trains, and how far it is comes from its ranks.

namespace parcae {

using enum phase;

namespace {

/// What has to be over by a moment is given this multiple of the time expected, and what a busy machine may take to
/// wake all who have a part in it: in a small job that is more than the rest.
constexpr double move_margin = 2;
constexpr milliseconds wake_margin{250};

} // namespace

// clang-format off
std::vector<conductor::machine::row> conductor::machine::training_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {running, says_progress, "", nullptr,
      "learns of steps; the limit begins anew", &m::note_progress_in_time, {}},
    // While deciding nothing is learnt: what it says was decided without it.
    {{recovering, readying, warming, stopping, aborting, activating, finishing}, says_progress, "", nullptr,
      "learns of steps", &m::note_progress, {}},
    {running, says_evaluated, "", nullptr,
      "the limit begins anew", &m::watch_progress, {}},
    // While activating, the last ACTIVE is waited for; while aborting, the step may still be dropped.
    {{running, readying, warming, stopping}, first_commit, "", nullptr,
      "RELEASE to all workers", &m::release_rest, {}},

    {running, due, "", nullptr,
      "asks the planner", &m::ask_in_time, {}},
    {running, chosen, "it fits, and is another or replaces who leaves", &m::change_pays,
      "plans places and moves", &m::begin_beside, readying},
    {{running, readying, warming}, all_stopped, "at the final version", &m::is_final,
      "ends g in the chain", &m::end_with_final, finishing},
    {running, all_stopped, "", nullptr, // by the manager before
      "ends g in the chain", &m::end_for_planning, planning},
    // Its pipelines have nothing to say to each other: the whole ones serve on until g+1 is prepared.
    {running, place_lost, "g serves, and another pipeline of it is whole", &m::serves_on,
      "ABORT of g to its pipeline; plans soon", &m::lose_pipeline, {}},
    {readying, place_lost, "g serves, and another pipeline of it is whole", &m::serves_on,
      "ABORT of g to its pipeline, and of g+1; plans soon", &m::lose_pipeline_and_change, running},
    {stopping, place_lost, "g serves, and another pipeline of it is whole", &m::serves_on,
      "ABORT of g to its pipeline, which is not waited for; g+1 is not used if it has a part there", &m::lose_stopping, {}},
    {{running, readying}, broken, "g serves, and another pipeline of it is whole", &m::serves_on,
      "ABORT of g to its pipeline; plans soon", &m::lose_pipeline, {}},
    {stopping, broken, "g serves, and another pipeline of it is whole", &m::serves_on,
      "ABORT of g to its pipeline, which is not waited for", &m::lose_stopping, {}},
    {activating, place_lost, "g serves, and another pipeline of it is whole", &m::serves_on,
      "ABORT of g to its pipeline, which is not waited for; plans soon", &m::lose_activating, {}},
    {activating, broken, "g serves, and another pipeline of it is whole", &m::serves_on,
      "ABORT of g to its pipeline, which is not waited for; plans soon", &m::lose_activating, {}},
    {{running, readying, warming, stopping, activating}, place_lost, "", nullptr,
      "ABORT of g+1", &m::abort, aborting},
    {{running, readying, warming, stopping, activating}, broken, "", nullptr,
      "counts a restart; ABORT of g+1", &m::abort_broken, aborting},
    // What was on its way when it was lost arrives, or ranks hear of the end of its connection. If that does not come:
    {{running, activating}, source_lost, "", nullptr,
      "shortens the limit", &m::wait_less_for_source, {}},
    {{running, activating}, late, "who sends it shards is lost", &m::lacks_source,
      "", &m::abort_for_source, aborting},
    {running, late, "", nullptr,
      "doubles the limit of progress", &m::abort_stuck, aborting},
    {running, last_moment, "", nullptr,
      "its state goes to the keepers", &m::secure, stopping},
    {running, closing, "there is no keeper", &m::no_keeper,
      "says what is lost", &m::close_without_keeper, ended},
    {running, closing, "", nullptr,
      "its state goes to the keepers", &m::stop_for_good, stopping},
  };
}

std::vector<conductor::machine::row> conductor::machine::stopping_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {stopping, says_stopped, "", nullptr,
      "one answer less to wait for", &m::note_answer, {}},
    {stopping, all_answered, "at the final version", &m::is_final,
      "ends g in the chain", &m::end_with_final, finishing},
    {stopping, all_answered, "g+1 is prepared", &m::next_is_good,
      "ends g in the chain", &m::end_generation, activating},
    {stopping, all_answered, "", nullptr,
      "ends g in the chain; ABORT of g+1", &m::end_for_planning, planning},
    {stopping, part_lost, "", nullptr,
      "g+1 is not used", &m::spoil, {}},
    // What went ahead may fail as late as that. g is healthy.
    {stopping, next_broken, "", nullptr,
      "g+1 is not used", &m::spoil, {}},
    {stopping, refused, "not for want of its connections", &m::fails_by_itself,
      "g+1 is not used; it gets no new place for now", &m::spoil_and_refuse, {}},
    // If others could take the stage over, or keep it, ABORT is sent in time for that.
    {{warming, stopping}, leaving, "", nullptr,
      "shortens the limit if need be", &m::watch_notices, {}},
    {stopping, notice, "to a participant of g+1, and ends before the limit", &m::is_participant,
      "g+1 is not used", &m::spoil, {}},
    {stopping, late, "the notice to those who alone hold a stage is over", &m::outlasts_notice,
      "ABORT of g+1", &m::abort_at_notice, aborting},
    {stopping, late, "", nullptr,
      "doubles the limit of progress; ABORT of g+1", &m::abort_unstopped, aborting},
  };
}
// clang-format on

// Steps

bool conductor::machine::learn_steps(const trigger& x) {
  if (std::holds_alternative<served>(*x.said))
    return learn_service(x);
  const auto& said = std::get<progress>(*x.said);
  auto& current = *generations_.current;
  desk_.forget_restarts();
  changes_.wait_for_state(current.g, said.late_wait_ms);
  const bool was_finite = std::isfinite(course_.last_loss());
  const auto rank = current.rank(x.slot);
  const bool is_news = rank && course_.hear(now_, *rank, said);
  if (is_news) {
    if (was_finite && !std::isfinite(said.result.loss) && job_.specification.on_not_finite == "go_on")
      log(severity::warning, "the loss is not finite at step " + std::to_string(said.at.steps) +
                                 "; a smaller optimizer.learning_rate or optimizer.clip_norm may help");
    if (const auto more = said.skipped - std::min(said.skipped, current.skipped); more > 0) {
      current.skipped = said.skipped;
      log(severity::warning, counted(more, "step") + " up to step " + std::to_string(said.at.steps) +
                                 " changed nothing: loss or gradients were not finite");
    }
  }
  if (!std::exchange(current.committed, true))
    happens({trigger_kind::first_commit, x.slot});
  return is_news;
}

void conductor::machine::note_progress_in_time(const trigger& x) {
  free_ahead();
  if (learn_steps(x))
    watch_progress();
}

void conductor::machine::release_rest(const trigger&) {
  auto& current = *generations_.current;
  current.released = true;
  roster_.forgive();
  changes_.first_commit(now_, current.g);
  for (auto&& [id, slot] : roster_.workers())
    send_release(id, slot);
  if (facts().is_calm && desk_.take_missed())
    plan_soon(desk_.trigger());
}

void conductor::machine::send_release(const slot_id& id, slot_state& slot) {
  send(id, release_for(id));
  slot.held = generations_.current->left_by_release(id, std::move(slot.held));
}

release conductor::machine::release_for(const slot_id& id) const {
  const auto& current = *generations_.current;
  release result{current.g, current.layers_of(id), {}};
  if (const auto* slot = roster_.find(id); current.has(id) || !slot || slot->leaving || !slot->loaded)
    return result;
  const auto& first = current.grid.first_layer;
  const auto bytes = [&](std::uint32_t stage) { return job_.state_bytes(first[stage], first[stage + 1]); };
  std::uint32_t largest = 0;
  for (std::uint32_t stage = 1; stage < current.grid.depth; ++stage)
    if (bytes(stage) > bytes(largest))
      largest = stage;
  result.room = layers_of(current.grid, largest);
  return result;
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

// Running

void conductor::machine::watch_progress(const trigger&) {
  wait_until(now_ + step_limit());
}

milliseconds conductor::machine::step_limit() const {
  const auto& current = *generations_.current;
  const auto all = progress_limit();
  return current.committed ? all : all + job_.transfer_limit(current.moved_bytes) - job_.transfer_limit(0);
}

void conductor::machine::begin_running() {
  watch_progress();
  if (lacks_source({}))
    wait_less_for_source({});
  desk_.at_the_latest(now_ + milliseconds(job_.specification.planning_interval_ms));
  if (generations_.current->committed && !generations_.current->released)
    release_rest();
  if (desk_.take_missed())
    plan_soon(desk_.trigger());
}

void conductor::machine::ask_in_time(const trigger& x) {
  // PREPARE to who only sends would end what it sends, and the generation with that.
  if (!generations_.current->sources().empty())
    desk_.miss(); // until the first commit
  else
    ask_planner();
  if (x.why.empty())
    desk_.because("the planning interval's end");
  desk_.at_the_latest(now_ + milliseconds(job_.specification.planning_interval_ms));
}

bool conductor::machine::change_pays(const trigger&) const {
  const auto& grid = generations_.current->grid;
  if (desk_.choice.width == 0 || too_few_are_left({}))
    return false; // it goes on while it can
  bool all_stay = true, refused = false;
  for (const auto& [id, rank] : generations_.current->rank_of) {
    const auto* slot = roster_.find(id);
    all_stay &= slot && !slot->leaving && !slot->excluded && !generations_.current->gone.contains(id);
    refused |= slot && slot->no_new_place;
  }
  const bool same = desk_.choice.width == grid.width && desk_.choice.depth == grid.depth;
  return !all_stay || !(refused || same); // what failed beside this generation would fail again
}

void conductor::machine::begin_beside(const trigger&) {
  free_ahead();
  changes_.close_if_active();
  plan_next(running_version(generations_.current->g));
}

void conductor::machine::abort_stuck(const trigger& x) {
  const auto limit = progress_limit();
  course_.count_stuck();
  abort({x.kind, {}, "no progress within " + text_of_duration(limit)});
}

bool conductor::machine::lacks_source(const trigger&) const {
  return std::ranges::any_of(generations_.current->sources(), [&](const auto& id) {
    const auto* slot = roster_.find(id);
    return !slot || slot->excluded; // one that failed may live
  });
}

void conductor::machine::wait_less_for_source(const trigger&) {
  const milliseconds step(static_cast<std::int64_t>(std::ceil(3 * longest_step_ms())));
  phase_.limit = std::min(*phase_.limit, now_ + job_.options.request_limit + step);
}

void conductor::machine::abort_for_source(const trigger& x) {
  abort({x.kind, {}, "the loss of who sends generation " + std::to_string(generations_.current->g.value) + " shards"});
}

void conductor::machine::secure(const trigger&) {
  desk_.because("the end of a notice to those who alone hold a stage");
  log(severity::information, "the generation stops, and the keepers take its state: " + desk_.trigger());
}

void conductor::machine::close_without_keeper(const trigger& x) {
  say_farewell({x.kind, {}, closing_text("there is no keeper")});
}

// Stopping

void conductor::machine::begin_stopping() {
  const auto& current = *generations_.current;
  auto whom = current.ranks();
  std::erase_if(whom, [&](const auto& x) { return current.stopped_ranks.contains(x) || current.gone.contains(x); });
  // Without a generation that takes the state over the keepers do.
  ask(whom, stop{current.g, !generations_.next}, step_limit(), true);
  happens({trigger_kind::leaving}); // which nothing follows from if all had stopped before: the phase is over then
}

void conductor::machine::end_with_final(const trigger&) {
  const auto at = generations_.current->stopped_at;
  chain_.end(generations_.current->g, at.steps);
  course_.reached(at.steps);
  // A manager that finds it open finds that all of its ranks have stopped.
  persist("generation " + std::to_string(generations_.current->g.value) + " stopped at version " + to_string(at), true);
  changes_.stall(now_);
  changes_.open(now_, desk_.trigger());
  changes_.mark(&change_status::stopped_ms, now_);
  if (!is_final({}))
    return;
  abort_next();
  if (generations_.early_end)
    log(severity::information, "the job ends at step " + std::to_string(*generations_.early_end) + " of " +
                                   std::to_string(job_.specification.steps) + ": validation does not get better");
}

void conductor::machine::end_generation(const trigger& x) {
  end_with_final(x);
  generations_.base = generations_.current->stopped_at;
  generations_.current.reset();
}

void conductor::machine::end_for_planning(const trigger& x) {
  if (!generations_.next) // STOP asked for a snapshot
    protection_.save(generations_.current->stopped_at);
  end_generation(x);
  abort_next(); // not all of its participants need be of the next one, whose PREPARE would supersede it
  desk_.because(reason());
}

void conductor::machine::abort_unstopped(const trigger& x) {
  course_.count_stuck();
  abort({x.kind, {}, "the generation did not stop in time"});
}

void conductor::machine::abort_at_notice(const trigger& x) {
  abort({x.kind, {}, "the step outlasts the notice to those who alone hold a stage"});
}

bool conductor::machine::outlasts_notice(const trigger&) const {
  const auto moment = last_moment_to_move();
  return moment && *moment <= now_ && can_be_moved();
}

// Notices to those who alone hold a stage

milliseconds conductor::machine::moving(double ms) {
  return milliseconds(static_cast<std::int64_t>(std::ceil(move_margin * ms))) + wake_margin;
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

void conductor::machine::watch_notices(const trigger&) {
  if (const auto moment = last_moment_to_move(); moment && can_be_moved())
    phase_.limit = std::min(*phase_.limit, *moment);
}

std::optional<time_point> conductor::machine::moment_to_secure() const {
  if (roster_.leaving().empty() || !facts().trains || !roster_.has_keepers() ||
      (facts().is_calm && desk_.has_news() && roster_.usable() > 0))
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
