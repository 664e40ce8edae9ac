#include "actors/conductor/conductor_machine.hpp"

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
  const auto sizes = serves ? service::common_sizes(current->grid, roster_) : std::vector<std::uint32_t>{};
  if (serves && sizes.empty())
    return; // it goes on under a new manager, which will hear of them
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
  desk_.forget_restarts();
  const bool all = service_.hear(current, x.slot, std::get<served>(*x.said));
  if (all)
    course_.forget_stuck();
  if (all && !std::exchange(current.committed, true))
    happens({trigger_kind::first_commit, x.slot});
  return all;
}

// What the first worker's are the job's are, also for the next managers.
std::string conductor::machine::bits_of(const loaded& x) const {
  return job_.specification.serves() ? "passes of " + std::to_string(x.passes.reference) : x.data_digest;
}

std::string conductor::machine::why_it_differs(const loaded& x, bool known) const {
  if (job_.specification.serves() && x.passes.reference == 0)
    return "it does not say in which passes rows have the same bits";
  if (job_.specification.serves())
    return "rows have other bits there, those of " + bits_of(x) + "; the job's are those of " + roster_.data_digest();
  return "the data at " + job_.specification.data.where() + " differs from " +
         (known ? "that of the others" : "what the job started with");
}

} // namespace parcae
