#include "actors/conductor/training_course.hpp"

#include <cmath>

namespace parcae {

namespace {

constexpr std::chrono::milliseconds resolution{500};

} // namespace

void loss_curve::add(std::uint64_t steps, double loss) {
  if (!std::isfinite(loss))
    return;
  while (!points_.empty() && points_.back().steps >= steps) {
    points_.pop_back();
    in_last_ = per_point_;
  }
  if (!points_.empty() && in_last_ < per_point_) {
    ++in_last_;
    points_.back().loss += (loss - points_.back().loss) / static_cast<double>(in_last_);
    points_.back().steps = steps;
    return;
  }
  if (points_.size() == most_points) {
    for (std::size_t i = 0; i < most_points / 2; ++i)
      points_[i] = {points_[2 * i + 1].steps, (points_[2 * i].loss + points_[2 * i + 1].loss) / 2};
    points_.resize(most_points / 2);
    per_point_ *= 2;
  }
  points_.push_back({steps, loss});
  in_last_ = 1;
}

void commit_pace::add(time_point now, std::uint64_t steps_done) {
  // The newest is kept exact: it takes the place of one that is too close to the one before.
  if (seen_.size() > 1 && seen_.back().first - seen_[seen_.size() - 2].first < resolution)
    seen_.pop_back();
  seen_.emplace_back(now, steps_done);
  while (seen_.size() > 2 && seen_[1].first <= now - window)
    seen_.pop_front();
}

double commit_pace::steps_per_s() const {
  if (seen_.size() < 2 || seen_.back().second <= seen_.front().second)
    return 0;
  const std::chrono::duration<double> time = seen_.back().first - seen_.front().first;
  if (time.count() <= 0)
    return 0;
  return static_cast<double>(seen_.back().second - seen_.front().second) / time.count();
}

} // namespace parcae
