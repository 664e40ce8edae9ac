#include "protocols/choreography/snapshots.hpp"

#include <algorithm>

namespace parcae {

wishes& wishes::operator|=(const wishes& x) {
  stop |= x.stop;
  snapshot |= x.snapshot;
  due |= x.due;
  busy |= x.busy;
  rests |= x.rests;
  return *this;
}

// All ranks together, or none: were each stream to skip what it has no time for, the keepers would hold layers of many
// versions and never one that is whole.
bool goes_to_keepers(const wishes& of_all, std::uint64_t step, const job_specification& job) {
  const bool usual = job.snapshot_is_due(step + 1) && !(of_all.rests && job.paces_snapshots());
  return of_all.snapshot || ((of_all.due || usual) && !of_all.busy) || step + 1 == job.steps;
}

bool is_put_off(std::uint64_t step, const job_specification& job) {
  return !job.paces_snapshots() && job.snapshot_is_due(step + 1);
}

bool sends_to(const keeper_share& to, const placement& grid, std::uint32_t rank, std::uint32_t layer, bool whole) {
  return (whole || grid.sends(rank, layer)) && std::ranges::binary_search(to.layers, layer);
}

// Where a snapshot is asked for, what is on its way may be void.
bool is_repeated(const protect& before, const protect& now) {
  return !now.now && before.job == now.job && before.permit.token == now.permit.token && before.keepers == now.keepers;
}

} // namespace parcae
