#include "actors/conductor/conductor_machine.hpp"

// What is other where a job serves: SERVED in the place of PROGRESS, and the gateways, which no row speaks of.

namespace parcae {

// Gateways

void conductor::machine::tell_gateways() {
  if (!job_.specification.serves() || facts().is_unsettled || facts().is_over)
    return;
  const auto& current = generations_.current;
  const bool serves = facts().trains;
  for (const auto& [slot, way] :
       service_.to_be_told(serves ? service::way{current->g, current->grid.width} : service::way{})) {
    route x{job_.id, way.current, {}, job_.specification, {}, {}};
    if (way.width > 0) {
      x.token = token_for(way.current);
      x.target = current->grid;
      x.sizes = service::common_sizes(current->grid, roster_);
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
  desk_.forget_restarts();
  const bool all = service_.hear(current, x.slot, std::get<served>(*x.said));
  if (all && !std::exchange(current.committed, true))
    happens({trigger_kind::first_commit, x.slot});
  return all;
}

std::string conductor::machine::problem_with_passes(const slot_id& from, const proven_sizes& x) {
  if (!job_.specification.serves() || service_.agrees(x))
    return {};
  if (x.reference == 0)
    return to_string(from) + " does not say in which passes rows have the same bits; is it another build?";
  return "rows have other bits there: those of passes of " + std::to_string(x.reference) + ", the job's of passes of " +
         std::to_string(service_.reference());
}

} // namespace parcae
