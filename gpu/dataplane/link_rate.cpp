#include "gpu/dataplane/link_rate.hpp"

#include <algorithm>

namespace parcae {

void link_rate::note(std::span<const link_use> uses, std::chrono::microseconds between, time_point now) {
  if (const auto old = now - began_; old >= age) {
    most_ = {0, old < 2 * age ? most_[0] : 0};
    began_ = now;
  }
  const auto see = [&](const link_use& x) {
    if (x.busy >= least_busy)
      most_[0] = std::max(most_[0], static_cast<double>(x.bytes) * 1e6 / static_cast<double>(x.busy.count()));
  };
  link_use all;
  for (const auto& x : uses) {
    all.bytes += x.bytes;
    all.busy += x.busy;
    see(x);
  }
  all.busy = std::min(all.busy, between); // one after the other, for all that is known, but within that time
  see(all);
}

double link_rate::bytes_per_s(time_point now) const {
  const auto old = now - began_;
  return old < age ? std::max(most_[0], most_[1]) : old < 2 * age ? most_[0] : 0;
}

} // namespace parcae
