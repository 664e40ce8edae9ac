#include "gpu/executor/worker_machine.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <array>

namespace parcae {

using phase = worker_phase;
using namespace worker_effects;

BOOST_DESCRIBE_ENUM(worker_phase, absent, preparing, prepared, warming, unprepared, moving, delivered, unmoved, cut,
                    running, stopped, broken, aborting, aborted)

std::string to_string(worker_phase x) {
  return std::string(enum_name(x));
}

std::string to_string(worker_trigger x) {
  constexpr std::array texts{"PREPARE is heard",
                             "all participants are connected",
                             "memory or a connection is missing",
                             "WARM",
                             "it follows all that it is sent",
                             "a layer could not be sent, or followed",
                             "STOP is heard",
                             "ACTIVATE is heard",
                             "ABORT or FORGET is heard",
                             "STOP",
                             "ACTIVATE",
                             "all shards were moved",
                             "shards could not be moved",
                             "its layers are bound",
                             "its version was evaluated",
                             "a step was committed",
                             "no step is left",
                             "its pipeline is drained",
                             "a step failed",
                             "ABORT",
                             "nothing moves any more",
                             "DECIDE",
                             "the step decided on was applied",
                             "the step decided on could not be applied",
                             "a newer generation takes the state",
                             "RELEASE",
                             "RELEASE of a newer generation",
                             "TRACE",
                             "PROTECT",
                             "FORGET"};
  static_assert(texts.size() == static_cast<std::size_t>(worker_trigger::forget) + 1,
                "a text for each trigger, in their order");
  return texts.at(static_cast<std::size_t>(x));
}

std::vector<worker_row> worker_machine::table() {
  return rules_of(rows);
}

void worker_machine::take_row(part& of, const trigger& x) {
  if (const auto* row = run_row(*this, *rules_, of.phase, x.on, x, observe); row && row->to)
    of.phase = *row->to;
}

worker_machine::effects worker_machine::happens(part& of, worker_trigger on, const worker_command* told) {
  take_row(of, {on, of, told, nullptr});
  return std::exchange(effects_, {});
}

void worker_machine::free_all_but(const std::vector<std::uint32_t>& keep) {
  free_shards gone;
  std::erase_if(held_, [&](const layer_version& x) {
    const bool goes = !std::ranges::binary_search(keep, x.layer);
    if (goes)
      gone.layers.push_back(x.layer);
    return goes;
  });
  if (!gone.layers.empty())
    effects_.push_back(std::move(gone));
}

void worker_machine::free_followed() {
  std::vector<std::uint32_t> keep;
  for (const auto& x : held_)
    if (std::ranges::find(followed_, x) == followed_.end())
      keep.push_back(x.layer);
  free_all_but(keep);
  followed_.clear();
}

void worker_machine::free_stage() {
  std::vector<std::uint32_t> keep;
  for (const auto& x : held_)
    if (x.layer < current_.first_layer || x.layer >= current_.last_layer)
      keep.push_back(x.layer);
  free_all_but(keep);
}

// --- heard

worker_machine::effects worker_machine::hear(prepare x) {
  const job_generation of{x.job, x.next};
  if (next_.is_there() && next_.of == of)
    return happens(next_, worker_trigger::prepare_heard);
  if (of <= newest_)
    return {};
  newest_ = of;
  if (next_.is_there()) {
    effects_.push_back(cut{next_.of});
    effects_.push_back(drop{next_.of});
  }
  next_ = {};
  next_.of = of;
  const auto& grid = x.target;
  const auto self = static_cast<std::uint32_t>(std::ranges::find(grid.participants, self_, &participant::slot) -
                                               grid.participants.begin());
  if (self == grid.participants.size())
    next_.answer = failed{x.next, failure::refused, 0, to_string(self_) + " is not a participant", {}};
  next_.is_rank = self < grid.ranks();
  if (next_.is_rank) {
    next_.first_layer = grid.first_layer[grid.stage_of(self)];
    next_.last_layer = grid.first_layer[grid.stage_of(self) + 1];
  }
  auto result = happens(next_, worker_trigger::prepare_heard);
  if (next_.phase == phase::preparing)
    result.push_back(connect{std::move(x)});
  return result;
}

worker_machine::effects worker_machine::hear(const worker_command& x) {
  if (const auto* s = std::get_if<stop>(&x))
    recorded_ = s->recorded; // STOPPED may be said before STOP is taken
  if (const auto* s = std::get_if<stop>(&x); s && current_.of.number == s->current)
    return happens(current_, worker_trigger::stop_heard, &x);
  if (const auto* a = std::get_if<activate>(&x); a && current_.of.number == a->next)
    return happens(current_, worker_trigger::activate_heard, &x);
  // What is over with that, and may keep this worker waiting: a step for a peer that is gone, shards for minutes. A
  // manager that names an older generation than the next, or none, knows nothing of that: the one before it died, and
  // this one decides without those who do not answer.
  const auto is_over = [&](const part& each) {
    if (const auto* f = std::get_if<forget>(&x))
      return each.of.job == f->job;
    const auto* a = std::get_if<abort_generation>(&x);
    return a && (each.of.number == a->current || (&each == &next_ && a->current < next_.of.number));
  };
  effects result;
  for (auto* each : {&current_, &next_})
    if (is_over(*each))
      std::ranges::move(happens(*each, worker_trigger::abort_heard, &x), std::back_inserter(result));
  return result;
}

worker_machine::effects worker_machine::connected(const job_generation& of, std::uint64_t checksum) {
  if (next_.of != of || next_.phase != phase::preparing)
    return {};
  next_.answer = prepared{of.number, checksum};
  return happens(next_, worker_trigger::connected);
}

worker_machine::effects worker_machine::not_connected(const job_generation& of, failed why) {
  if (next_.of != of || next_.phase != phase::preparing)
    return {};
  next_.answer = std::move(why);
  return happens(next_, worker_trigger::not_connected);
}

// --- in their order

void worker_machine::end_older(generation than) {
  if (current_.of.number < than)
    take_row(current_, {worker_trigger::superseded, current_, nullptr, nullptr});
}

worker_machine::effects worker_machine::take(const worker_command& x) {
  std::visit([&](const auto& y) { take_one(y, x); }, x);
  return std::exchange(effects_, {});
}

void worker_machine::on(part& of, worker_trigger what, const worker_command& told) {
  take_row(of, {what, of, &told, nullptr});
}

void worker_machine::on_part_of(generation g, worker_trigger what, const worker_command& told) {
  part none{.of = {{}, g}};
  on(next_.is(g) ? next_ : current_.is(g) ? current_ : none, what, told);
}

void worker_machine::take_one(const parcae::warm& x, const worker_command& told) {
  if (next_.is(x.next))
    on(next_, worker_trigger::warm, told);
}

void worker_machine::take_one(const stop& x, const worker_command& told) {
  if (current_.is(x.current))
    on(current_, worker_trigger::stop, told);
}

void worker_machine::take_one(const activate& x, const worker_command& told) {
  if (next_.is(x.next))
    on(next_, worker_trigger::activate, told);
  else if (current_.is(x.next))
    on(current_, worker_trigger::activate, told);
}

void worker_machine::take_one(const abort_generation& x, const worker_command& told) {
  recorded_ = x.recorded;
  on_part_of(x.current, worker_trigger::abort, told);
}

void worker_machine::take_one(const decide& x, const worker_command& told) {
  on_part_of(x.current, worker_trigger::decide, told);
}

void worker_machine::take_one(const release& x, const worker_command& told) {
  if (x.current < newest_.number)
    return;
  end_older(x.current);
  free_all_but(x.keep);
  if (current_.of.number < x.current)
    on(current_, worker_trigger::left_behind, told);
  if (next_.is(x.current))
    on(next_, worker_trigger::released, told);
  if (!x.room.empty())
    effects_.push_back(make_room{x.room});
}

void worker_machine::take_one(const protect& x, const worker_command& told) {
  effects_.push_back(use_keepers{x});
  protected_ = x.keepers.empty() ? job_id{} : x.job;
  protected_at_ = state_.at;
  wants_snapshot_ |= x.now;
  on(current_, worker_trigger::protect, told);
}

void worker_machine::take_one(const trace_steps& x, const worker_command& told) {
  if (current_.is(x.current))
    on(current_, worker_trigger::trace, told);
}

void worker_machine::take_one(const forget& x, const worker_command& told) {
  if (protected_ == x.job) {
    protected_ = {};
    wants_snapshot_ = false;
  }
  for (auto* each : {&current_, &next_})
    if (each->of.job == x.job)
      on(*each, worker_trigger::forget, told);
  if (stored_ == x.job)
    free_all_but({});
  if (results_of_ == x.job)
    results_ = {};
  effects_.push_back(forget_job{x.job});
}

void worker_machine::take_one(const recall& x, const worker_command&) {
  const auto known = results_.part(results_.news_from(x.from));
  const bool has_any = results_of_ == x.job && !known.all.empty();
  effects_.push_back(say{recalled{x.job, x.from, has_any ? encode(known) : std::vector<char>()}});
}

worker_machine::effects worker_machine::warmed(const job_generation& of, std::uint64_t bytes, double ms) {
  if (next_.of != of || next_.phase != phase::warming)
    return {};
  next_.warmth = parcae::warmed{of.number, bytes, ms};
  return happens(next_, worker_trigger::followed);
}

worker_machine::effects worker_machine::not_fed(const job_generation& of, failure kind, std::string why) {
  if (next_.of != of || next_.phase != phase::warming)
    return {};
  next_.answer = failed{of.number, kind, 0, std::move(why), held_};
  return happens(next_, worker_trigger::not_fed);
}

worker_machine::effects worker_machine::kept_followed(const job_generation& of, inventory held) {
  const auto before = std::exchange(held_, std::move(held));
  std::erase_if(followed_, [&](const auto& x) { return std::ranges::find(held_, x) == held_.end(); });
  std::ranges::set_difference(held_, before, std::back_inserter(followed_));
  followed_of_ = of;
  stored_ = of.job;
  if (next_.of != of || next_.phase != phase::cut)
    return {};
  return happens(next_, worker_trigger::settled);
}

worker_machine::effects worker_machine::moved(const job_generation& of, inventory held) {
  held_ = std::move(held);
  if (next_.of != of || next_.phase != phase::moving)
    return {};
  auto result = happens(next_, worker_trigger::moved);
  if (next_.phase == phase::running)
    current_ = std::exchange(next_, {});
  return result;
}

worker_machine::effects worker_machine::not_moved(const job_generation& of, failure kind, std::string why,
                                                  inventory held) {
  held_ = std::move(held);
  if (next_.of != of || next_.phase != phase::moving)
    return {};
  next_.answer = failed{of.number, kind, 0, std::move(why), held_};
  return happens(next_, worker_trigger::not_moved);
}

worker_machine::effects worker_machine::begun(const training_state& x) {
  learn(x);
  return happens(current_, worker_trigger::begun);
}

worker_machine::effects worker_machine::became_whole(inventory held) {
  held_ = std::move(held);
  return {};
}

worker_machine::effects worker_machine::evaluated(const training_state& x, std::uint32_t first_replica,
                                                  std::vector<double> sums, double loss) {
  learn(x);
  if (x.at.steps > 0)
    results_of(current_.of.job).evaluate(x.at.steps - 1, loss);
  if (sums.empty())
    return {};
  losses_ = parcae::evaluated{current_.of.number, x.at, first_replica, std::move(sums)};
  return happens(current_, worker_trigger::evaluated);
}

worker_machine::effects worker_machine::committed(const training_state& x) {
  learn(x);
  note_result();
  return happens(current_, worker_trigger::committed);
}

worker_machine::effects worker_machine::no_step_left(const training_state& x) {
  learn(x);
  return happens(current_, worker_trigger::no_step_left);
}

worker_machine::effects worker_machine::drained(const training_state& x) {
  learn(x);
  return happens(current_, worker_trigger::drained);
}

worker_machine::effects worker_machine::step_failed(const training_state& x, failure kind, std::string why) {
  learn(x);
  const failed what{current_.of.number, kind, 0, std::move(why), {}};
  take_row(current_, {worker_trigger::step_failed, current_, nullptr, &what});
  return std::exchange(effects_, {});
}

worker_machine::effects worker_machine::interrupted(const training_state& x) {
  learn(x);
  return {};
}

worker_machine::effects worker_machine::settled(inventory held) {
  held_ = std::move(held);
  return happens(current_, worker_trigger::settled);
}

worker_machine::effects worker_machine::applied(const training_state& x) {
  learn(x);
  note_result();
  return happens(current_, worker_trigger::applied);
}

worker_machine::effects worker_machine::not_applied(const training_state& x, std::string why) {
  learn(x);
  const failed what{current_.of.number, failure::computation, 0, std::move(why), {}};
  take_row(current_, {worker_trigger::not_applied, current_, nullptr, &what});
  return std::exchange(effects_, {});
}

loss_record& worker_machine::results_of(job_id job) {
  if (std::exchange(results_of_, job) != job)
    results_ = {};
  return results_;
}

void worker_machine::note_result() {
  const auto& x = state_.result;
  if (x.step == no_step)
    return;
  results_of(current_.of.job);
  results_.go_back(x.step); // if steps are computed again
  results_.put(x.step, {x.loss, x.gradient_norm, x.learning_rate, {}, std::max<std::int64_t>(state_.at_ms, 1)});
  if (x.step % loss_block_steps == 0)
    results_.drop_before(x.step - std::min(x.step, losses_kept));
}

std::vector<char> worker_machine::unrecorded() const {
  const auto newest = results_.steps() - std::min(results_.steps(), loss_block_steps);
  const auto known = results_.part(results_.news_from(std::max(recorded_, newest)));
  return known.all.empty() ? std::vector<char>() : encode(known);
}

void worker_machine::learn(const training_state& x) {
  const auto before = std::exchange(state_, x).at;
  for (auto& each : held_) // what is not whole yet may be held of an older version
    if (!x.voided && each.at == before && each.layer >= current_.first_layer && each.layer < current_.last_layer)
      each.at = x.at;
}

} // namespace parcae
