#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>

// What is other where a job serves: SERVED in the place of PROGRESS, and the gateways, which no row speaks of.

namespace parcae {

// Gateways

void conductor::machine::tell_gateways() {
  if (!job_.specification.serves() || facts().is_unsettled || facts().is_over)
    return;
  const auto& current = generations_.current;
  const bool serves = facts().trains;
  const auto wanted = serves ? service::way{current->g, current->grid.width} : service::way{};
  if (service_.is_told(wanted))
    return;
  const auto sizes = serves ? service::common_sizes(*current, roster_) : std::vector<std::uint32_t>{};
  if (serves && sizes.empty())
    return; // it goes on under a new manager, which will hear of them
  if (serves)
    service_.use(sizes);
  for (const auto& [slot, way] : service_.to_be_told(wanted)) {
    route x{job_.id, way.current, {}, job_.specification, {}, {}};
    if (way.width > 0) {
      x.token = token_for(way.current);
      x.target = current->grid;
      x.sizes = sizes;
    }
    send(slot, std::move(x));
  }
}

// Ranks

void conductor::machine::hear(const slot_id& from, slot_state&, const served& x, const report& said) {
  if (generations_.is_current(x.current))
    happens({trigger_kind::says_progress, from, {}, &said});
}

bool conductor::machine::learn_service(const trigger& x) {
  auto& current = *generations_.current;
  const bool all = service_.hear(current, x.slot, std::get<served>(*x.said));
  if (all)
    course_.forget_stuck();
  if (all && current.gone.empty())
    desk_.forget_restarts();
  if (all && !std::exchange(current.committed, true))
    happens({trigger_kind::first_commit, x.slot});
  return all;
}

// Losses beside pipelines that are whole

bool conductor::machine::is_whole(const slot_id& rank) const {
  const auto& current = *generations_.current;
  return std::ranges::all_of(current.ranks_of_pipeline(rank), [&](const auto& id) {
    const auto* slot = roster_.find(id);
    return slot && !slot->excluded && !current.gone.contains(id);
  });
}

bool conductor::machine::has_answered(const slot_id& rank) const {
  return std::ranges::none_of(generations_.current->ranks_of_pipeline(rank),
                              [&](const auto& id) { return phase_.awaited.contains(id); });
}

bool conductor::machine::serves_on(const trigger& x) const {
  const auto& current = *generations_.current;
  if (!job_.specification.serves())
    return false;
  const auto hit = current.ranks_of_pipeline(x.slot);
  return std::ranges::any_of(current.rank_of,
                             [&](const auto& y) { return !hit.contains(y.first) && is_whole(y.first); });
}

bool conductor::machine::some_serve(const trigger&) const {
  const auto& current = *generations_.current;
  // Had one stopped, the manager before was about to begin another.
  return job_.specification.serves() && current.stopped_ranks.empty() &&
         std::ranges::any_of(current.rank_of,
                             [&](const auto& y) { return is_whole(y.first) && has_answered(y.first); });
}

void conductor::machine::cut_pipeline(const trigger& x) {
  auto& current = *generations_.current;
  for (const auto& id : current.ranks_of_pipeline(x.slot))
    if (current.gone.insert(id).second && roster_.find(id))
      send(id, abort_generation{current.g});
}

void conductor::machine::lose_pipeline(const trigger& x) {
  if (generations_.current->gone.contains(x.slot)) // what its end has cut says so, too
    return;
  cut_pipeline(x);
  if (x.kind == trigger_kind::broken)
    desk_.count_restart();
  log(severity::information, "a pipeline of generation " + std::to_string(generations_.current->g.value) +
                                 " serves no more, others do: " + x.why);
  plan_soon(x.why);
}

void conductor::machine::lose_pipeline_and_change(const trigger& x) {
  cut_pipeline(x);
  give_up(x);
}

void conductor::machine::lose_unawaited(const trigger& x) {
  cut_pipeline(x);
  for (const auto& id : generations_.current->ranks_of_pipeline(x.slot))
    answered(id);
}

void conductor::machine::lose_stopping(const trigger& x) {
  if (x.kind == trigger_kind::place_lost && generations_.takes_part(x.slot))
    spoil(x);
  lose_unawaited(x);
}

void conductor::machine::lose_activating(const trigger& x) {
  if (generations_.current->gone.contains(x.slot))
    return;
  if (x.kind == trigger_kind::broken)
    desk_.count_restart();
  plan_soon(x.why); // once it is activated
  lose_unawaited(x);
}

void conductor::machine::serve_by_some(const trigger& x) {
  for (const auto& [id, rank] : generations_.current->rank_of)
    if (!is_whole(id) || !has_answered(id))
      cut_pipeline({x.kind, id});
  if (!generations_.current->gone.empty())
    plan_soon(return_of_manager);
  go_on(x);
}

// What the first worker's are the job's are, also for the next managers.
std::string conductor::machine::problem_with_bits(const loaded& x) {
  if (!job_.specification.serves()) {
    const bool known = roster_.data_found();
    return roster_.agrees(x.data_digest) ? ""
                                         : "the data at " + job_.specification.data.where() + " differs from " +
                                               (known ? "that of the others" : "what the job started with");
  }
  if (x.passes.reference == 0)
    return "it does not say in which passes rows have the same bits";
  const auto bits = "passes of " + std::to_string(x.passes.reference);
  return roster_.agrees(bits)
             ? ""
             : "rows have other bits there, those of " + bits + "; the job's are those of " + roster_.data_digest();
}

} // namespace parcae
