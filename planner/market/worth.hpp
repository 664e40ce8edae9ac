#pragma once

// What a holding is worth from now on for a while. Pure.

#include "planner/market/purchase.hpp"

namespace parcae::market {

inline constexpr double look_ahead_s = 3 * 3600; ///< what an instance that comes is counted for, at most

double usd_per_h(const holding& h, const std::vector<place_offer>& places);

/// Of those that train, as many as a holding in their place replaces by others. Only as many as the money of an hour
/// allows beside it; none where money comes first, nor for the reserve, whose spare time has no room for their change.
holding replaced_by(const holding& h, const purchase_state& now, const purchase_options& options);

/// Instances that a job can use.
std::uint32_t max_of(const purchase_options& x);

/// Samples/s of a holding, once all of it trains.
double rate_of(const holding& h, const purchase_options& options, const std::vector<place_offer>& places);

/// Of a decision: what it is given must outlive it.
class appraiser {
public:
  appraiser(const purchase_options& options, const purchase_state& now, const spot_chain& chain,
            double usd_per_sample) :
      options_(options),
      now_(now), chain_(chain), usd_per_sample_(usd_per_sample) {}

  /// Samples at this price of one, less money, over what the holding is expected to last; starts, changes, a move are
  /// in it.
  purchase_option operator()(const holding& h) const;

private:
  double rate(std::size_t place, std::uint32_t instances) const;
  double lost(std::size_t place, std::uint32_t from, std::uint32_t to) const;

  const purchase_options& options_;
  const purchase_state& now_;
  const spot_chain& chain_;
  double usd_per_sample_;
};

} // namespace parcae::market
