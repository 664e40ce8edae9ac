#include "planner/cost/keeper_cost.hpp"

#include "protocols/choreography/snapshots.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace parcae {

keeper_cost::keeper_cost(const keeper_setup& setup, std::span<const double> layer_bytes, double link_bytes_per_ms) :
    setup_(setup), all_bytes_(std::accumulate(layer_bytes.begin(), layer_bytes.end(), 0.0)),
    link_bytes_per_ms_(link_bytes_per_ms) {
  if (!(setup_.copy_bytes_per_ms > 0) || !(link_bytes_per_ms_ > 0) || setup_.keepers < 1 || setup_.copies < 1 ||
      !(setup_.every >= 0) || !(setup_.share_of_link > 0))
    throw std::invalid_argument("costs of keepers need rates, keepers, copies and a share greater than 0");
  for (const auto bytes : layer_bytes)
    largest_bytes_ = std::max(largest_bytes_, bytes);
}

double keeper_cost::copies() const {
  return std::min(setup_.copies, setup_.keepers);
}

double keeper_cost::way_ms(double slice_bytes) const {
  if (setup_.at_once)
    return 0;
  // Whole layers are shared out, so that a keeper has at least one of the largest.
  const double received = std::max(all_bytes_ * copies() / setup_.keepers, largest_bytes_);
  const double share = setup_.every > 0 ? 1 : setup_.share_of_link;
  return std::max(received, slice_bytes * copies() / share) / link_bytes_per_ms_;
}

double keeper_cost::period(double slice_bytes, double step_ms) const {
  if (!(step_ms > 0))
    return std::max(setup_.every, 1.0);
  const double way = way_ms(slice_bytes);
  if (setup_.every > 0)
    return std::max(setup_.every, way / step_ms);
  // The first commit at which nothing is on its way, nor a processor rests of the copy before.
  const double rest_ms = setup_.processors ? slice_bytes / setup_.copy_bytes_per_ms / copying_share : 0;
  return std::max(1.0, std::ceil(std::max(way, rest_ms) / step_ms));
}

double keeper_cost::lag(double slice_bytes, double step_ms) const {
  return 0.5 * period(slice_bytes, step_ms) + (step_ms > 0 ? way_ms(slice_bytes) / step_ms : 0);
}

double keeper_cost::copy_ms(double slice_bytes, double step_ms) const {
  const double ms = slice_bytes / setup_.copy_bytes_per_ms;
  return setup_.processors ? ms : std::max(0.0, ms - step_ms);
}

double keeper_cost::sent_bytes(std::uint32_t width) const {
  return width * std::max(all_bytes_ / setup_.keepers, largest_bytes_ / copies());
}

} // namespace parcae
