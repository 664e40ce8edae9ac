#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>
#include <cmath>

namespace parcae {

using enum phase;

namespace {

keeper_record keeper_record_of(const slot_id& where, const inventory& held) {
  keeper_record result{where, {}, 0};
  for (const auto& layer : held)
    result.newest = std::max(result.newest, layer.at);
  for (const auto& layer : held)
    result.layers += layer.at == result.newest;
  return result;
}

} // namespace

void conductor::machine::update_protection() {
  std::vector<holder> holders;
  view_.keepers.clear();
  for (const auto& [id, slot] : slots_)
    if (slot.keeper) {
      holders.push_back({id, true, slot.held});
      view_.keepers.push_back(keeper_record_of(id, slot.held));
    }
  const auto layers = static_cast<std::uint32_t>(facts_.state_bytes.size());
  const auto before = view_.protected_version;
  view_.protected_version = newest_complete(chain_, layers, holders);
  view_.protected_now = view_.protected_version.steps > 0 &&
                        view_.protected_version.steps + 2 * specification_.keeper_every > view_.steps_done;
  if (view_.protected_version == before)
    return;
  digests_asked_ = false;
  for (auto& [id, slot] : slots_)
    slot.digests.clear();
  if (view_.protected_version.steps > 0) {
    confirmed_ = std::max(confirmed_, view_.protected_version);
    confirm_to_keepers(false);
    write_checkpoint();
  }
}

void conductor::machine::confirm_to_keepers(bool digests) {
  for (const auto& [id, slot] : slots_)
    if (slot.keeper)
      confirm_to(id, digests);
}

void conductor::machine::confirm_to(const slot_id& keeper, bool digests) {
  // Generations that ended before the confirmed version say nothing of what a keeper still holds, and grow in number.
  auto chain = chain_.links();
  std::erase_if(chain, [&](const auto& link) { return link.last < view_.protected_version.steps; });
  send(keeper, confirm{job_, view_.protected_version, std::move(chain), digests});
}

std::uint64_t conductor::machine::most_steps() const {
  auto most = view_.steps_done + 2;
  if (current_) {
    const auto least_ms = std::max(shortest_ms_.value_or(0) / fastest_step, least_step_ms);
    most = std::max(most, current_->base + 2 + static_cast<std::uint64_t>(ms_between(begun_at_, now_) / least_ms));
  }
  return std::min(specification_.steps, most);
}

void conductor::machine::believe(slot_state& keeper) {
  keeper.held = keeper.told;
  if (std::erase_if(keeper.held, [most = most_steps()](const auto& x) { return x.at.steps > most; }) > 0 && !doubtful_)
    doubtful_ = now_;
}

void conductor::machine::believe_again() {
  const auto since = std::exchange(doubtful_, std::nullopt);
  for (auto& [id, slot] : slots_) {
    const auto before = slot.held.size();
    if (!slot.keeper || before == slot.told.size())
      continue;
    believe(slot);
    if (slot.held.size() > before && view_.now != ended)
      keeper_has_news(id);
    if (doubtful_ && now_ - *since > options_.request_limit && !std::exchange(doubt_told_, true))
      log(severity::warning, to_string(id) + " says that it holds versions that cannot have been committed yet");
  }
  doubtful_ = doubtful_ ? since : std::nullopt;
}

void conductor::machine::on(const slot_reported& x) {
  if (const auto it = slots_.find(x.from); it != slots_.end())
    std::visit([&](const auto& what) { hear(x.from, it->second, what); }, x.what);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const loaded& x) {
  if (x.job != job_ || slot.loaded)
    return;
  if (data_digest_.empty())
    data_digest_ = x.data_digest;
  if (data_digest_ != x.data_digest)
    return cannot_load(from, slot,
                       "the data at " + specification_.data.path + " differs from " +
                           (data_found_ ? "that of the others" : "what the job started with"));
  data_found_ = slot.loaded = true;
  slot.data_problems = 0;
  slot.data_problem.clear();
  plan_soon(slot.arrival);
}

void conductor::machine::cannot_load(const slot_id& from, slot_state& slot, const std::string& why) {
  slot.loaded = false;
  slot.data_problem = why;
  ++slot.data_problems;
  exclude(from, why);
  if (const auto problem = data_problem_of_all(); !problem.empty())
    end_job(false, problem);
}

void conductor::machine::hear(const slot_id& from, slot_state&, const prepared& x) {
  if (!is_next(x.next) || (view_.now != readying && view_.now != preparing))
    return;
  if (x.checksum == next_->checksum)
    return answered(from);
  const auto why = to_string(from) + " understood another plan; is it another build?";
  exclude(from, why, true);
  missing(from, why);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const stopped& x) {
  if (!is_current(x.current) || !current_->rank_of.contains(from))
    return;
  slot.held = x.held;
  if (!current_->stopped_ranks.empty() && current_->stopped_at != x.at) {
    log(severity::error,
        to_string(from) + " stopped at " + to_string(x.at) + ", others at " + to_string(current_->stopped_at));
    return; // the limit of the phase ends in an abort
  }
  current_->stopped_ranks.insert(from);
  current_->stopped_at = x.at;
  if (view_.now == stopping) {
    answered(from);
  } else if ((view_.now == running || view_.now == readying) &&
             current_->stopped_ranks.size() == current_->rank_of.size()) {
    all_stopped(); // the final version, unasked
  }
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const delivered& x) {
  if (is_next(x.next) && view_.now == transferring) {
    slot.back_off = milliseconds(0);
    answered(from);
  }
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const ready& x) {
  if (!is_next(x.next) || view_.now != transferring)
    return;
  const auto& target = next_->what.target;
  for (std::uint32_t r = 0; r < target.ranks(); ++r)
    if (target.participants[r].slot == from)
      for (auto l = target.first_layer[target.stage_of(r)]; l < target.first_layer[target.stage_of(r) + 1]; ++l) {
        std::erase_if(slot.held, [&](const auto& h) { return h.layer == l; });
        slot.held.push_back({l, x.at});
      }
  std::ranges::sort(slot.held);
  answered(from);
}

void conductor::machine::hear(const slot_id& from, slot_state&, const active& x) {
  if (is_current(x.current) && view_.now == activating)
    answered(from);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const aborted& x) {
  slot.held = slot.told = x.held;
  if (slot.keeper)
    believe(slot);
  if (slot.excluded && slot.asked_back && *slot.excluded != time_point::max()) {
    slot.excluded.reset();
    slot.asked_back = false;
    if (view_.now == running) // nothing depended on it
      slot.back_off = milliseconds(0);
    if (slot.keeper) { // its executor may be another, which was told nothing yet
      slot.reading = false;
      send(from, guard_message());
    } else {
      send(from, protect{job_, keepers(), pass(from), false});
      ask_to_load(from, slot, "return of ");
    }
    plan_soon("return of " + to_string(from));
  }
  if (view_.now == clearing && is_next(x.current)) {
    answered(from);
  } else if (view_.now == aborting && is_current(x.current)) {
    if (const auto rank = current_->rank_of.find(from); rank != current_->rank_of.end()) {
      current_->aborted_ranks[rank->second] = x;
      current_->answered_stages.insert(current_->grid.stage_of(rank->second));
    }
    answered(from);
    if (view_.now == aborting && !only_holder_is_awaited())
      limit_ = std::min(*limit_, std::max(now_, *stall_began_ + options_.request_limit));
  }
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const decided& x) {
  if (!is_current(x.current) || view_.now != deciding)
    return;
  slot.held = x.held;
  if (const auto rank = current_->rank_of.find(from); rank != current_->rank_of.end())
    current_->answered_stages.insert(current_->grid.stage_of(rank->second));
  answered(from);
}

void conductor::machine::hear(const slot_id& from, slot_state&, const progress& x) {
  if (!is_current(x.current) || view_.now == deciding) // what it says was decided without it
    return;
  restarts_ = stuck_ = 0;
  if (const auto rank = current_->rank_of.find(from); rank != current_->rank_of.end()) {
    steps_.hear(rank->second, x);
    view_.peak_bytes[rank->second] = x.peak_bytes;
    refine_configurations();
  }
  if (x.step_ms > 0)
    shortest_ms_ = std::min(shortest_ms_.value_or(x.step_ms), x.step_ms);
  if (x.at.steps > view_.steps_done) {
    view_.steps_by_depth[current_->grid.depth] += x.at.steps - view_.steps_done;
    view_.steps_done = x.at.steps;
    if (!std::isfinite(x.result.loss) && std::isfinite(view_.last_result.loss))
      log(severity::warning, "the loss is not finite at step " + std::to_string(x.at.steps) +
                                 "; a smaller optimizer.learning_rate or optimizer.clip_norm may help");
    view_.last_result = x.result;
    view_.step_ms = x.step_ms;
    view_.losses.add(x.at.steps, x.result.loss);
    pace_.add(now_, x.at.steps);
    view_.steps_per_s = pace_.steps_per_s();
    if (view_.now == running || view_.now == readying)
      if (!limit_ || view_.now == running)
        watch_progress();
  }
  // While activating, the last ACTIVE is waited for; while aborting, the step may still be dropped.
  if (!std::exchange(current_->committed, true) &&
      (view_.now == running || view_.now == readying || view_.now == stopping))
    first_commit();
}

void conductor::machine::refine_configurations() {
  if (now_ - refined_at_ < refine_interval)
    return;
  refined_at_ = now_;
  view_.costs = steps_.costs(facts_.costs);
  view_.figures = meter_.figures();
  view_.other_ms = steps_.other_ms_in({current_->grid.width, current_->grid.depth});
  refine(view_.configurations, specification_, steps_.measured(specification_, view_.costs, platform()));
}

void conductor::machine::hear(const slot_id&, slot_state&, const evaluated& x) {
  if (!is_current(x.current) && !chain_.valid(x.at))
    return;
  if (view_.now == running && is_current(x.current))
    watch_progress();
  if (x.current <= evaluated_by_ && x.at < evaluated_at_)
    return; // said again, when others have told of a later one
  evaluated_by_ = std::max(evaluated_by_, x.current);
  if (std::exchange(evaluated_at_, x.at) != x.at)
    evaluation_sums_.clear();
  const auto known = evaluation_sums_.size();
  for (std::size_t i = 0; i < x.sums.size(); ++i)
    evaluation_sums_[x.first_replica + static_cast<std::uint32_t>(i)] = x.sums[i];
  if (evaluation_sums_.size() != specification_.virtual_replicas || known == evaluation_sums_.size())
    return; // not all yet, or said again
  double sum = 0;
  for (const auto& [replica, of_replica] : evaluation_sums_)
    sum += of_replica;
  view_.last_evaluation = {x.at.steps, sum / static_cast<double>(specification_.data.validation)};
  view_.validation_losses.add(x.at.steps, view_.last_evaluation->loss);
}

release conductor::machine::release_for(const slot_id& id) const {
  release x{current_->g, {}};
  if (const auto rank = current_->rank_of.find(id); rank != current_->rank_of.end()) {
    const auto stage = current_->grid.stage_of(rank->second);
    for (auto l = current_->grid.first_layer[stage]; l < current_->grid.first_layer[stage + 1]; ++l)
      x.keep.push_back(l);
  }
  return x;
}

void conductor::machine::release_all() {
  for (const auto& [id, slot] : slots_)
    if (!slot.keeper)
      send(id, release_for(id));
  for (auto& [id, slot] : slots_)
    if (!slot.keeper && !current_->rank_of.contains(id))
      slot.held.clear();
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const failed& x) {
  const auto why = to_string(from) + ": " + x.what;
  if (view_.now == readying && is_next(x.current) && x.kind != failure::unreachable) {
    refuse_new_place(from, x.what);
    give_up_next(why);
  } else if (x.kind == failure::data || (x.current == generation{} && !slot.keeper && !slot.loaded)) {
    x.kind == failure::data ? cannot_load(from, slot, x.what) : exclude(from, x.what);
    if (view_.now != ended)
      missing(from, why);
  } else if (x.kind == failure::unreachable && is_next(x.current)) {
    if ((view_.now != readying && view_.now != preparing) || x.peer >= next_->what.target.participants.size())
      return log(severity::information, why);
    // Two live instances that cannot reach each other: the younger does without a place for a while. A keeper has none.
    const auto peer = slots_.find(next_->what.target.participants[x.peer].slot);
    if (peer == slots_.end())
      return log(severity::information, why);
    const auto order = [](const slot_state& s) { return std::pair(!s.keeper, s.age); };
    const auto younger = order(peer->second) > order(slot) ? peer->first : from;
    if (view_.now == readying) {
      refuse_new_place(younger, why);
      return give_up_next(why);
    }
    exclude(younger, why);
    missing(younger, why);
  } else if (x.kind == failure::communication) {
    log(severity::information, why);
    if (is_current(x.current) &&
        (view_.now == running || view_.now == readying || view_.now == stopping || view_.now == activating)) {
      ++restarts_;
      abort_current("communication failed at " + why);
    } else if (is_next(x.current) && (view_.now == preparing || view_.now == transferring)) {
      ++restarts_;
      clear_next("communication failed at " + why);
    }
  } else if (is_current(x.current) || is_next(x.current)) {
    // It lives: in answer to ABORT or DECIDE it still says what it holds, which may be the only copy.
    const bool has_place = current_ && current_->rank_of.contains(from);
    if (has_place &&
        (view_.now == running || view_.now == readying || view_.now == stopping || view_.now == activating))
      abort_current(why);
    exclude(from, x.what);
    if (view_.now != aborting && view_.now != deciding && view_.now != clearing)
      missing(from, why);
  } else {
    log(severity::warning, why);
  }
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const kept& x) {
  if (x.job != job_)
    return;
  slot.told = x.held;
  believe(slot);
  slot.results = x.results;
  if (view_.now == running)
    slot.back_off = milliseconds(0);
  if (view_.now == waiting && slot.reading && limit_) // it reads a checkpoint, and goes on doing so
    limit_ = now_ + disk_limit();
  if (!x.digests.empty())
    slot.digests = x.digests;
  keeper_has_news(from);
}

void conductor::machine::keeper_has_news(const slot_id& from) {
  update_protection();
  if (final_is_protected() && (view_.now == waiting || view_.now == planning))
    plan_now(trigger_);
  if (view_.now == finishing)
    check_final_state("loss of what " + to_string(from) + " held");
  check_done();
}

} // namespace parcae
