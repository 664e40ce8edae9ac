#include "actors/conductor/training_course.hpp"

#include <algorithm>
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
  if (points_.size() == max_points) {
    for (std::size_t i = 0; i < max_points / 2; ++i)
      points_[i] = {points_[2 * i + 1].steps, (points_[2 * i].loss + points_[2 * i + 1].loss) / 2};
    points_.resize(max_points / 2);
    per_point_ *= 2;
  }
  points_.push_back({steps, loss});
  in_last_ = 1;
}

loss_curve loss_curve::of(std::vector<loss_point> points) {
  loss_curve result;
  if (points.size() > max_points)
    points.erase(points.begin(), points.end() - max_points);
  result.points_ = std::move(points);
  return result;
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

void tell_of(training_status& to, const commit_result& x) {
  to.loss = x.loss;
  to.gradient_norm = x.gradient_norm;
  to.learning_rate = x.learning_rate;
}

training_course::training_course(std::uint64_t steps_done, const training_status& past) :
    losses_(loss_curve::of(past.losses)), validation_losses_(loss_curve::of(past.validation_losses)) {
  static_cast<training_status&>(view_) = past;
  view_.steps_done = steps_done;
}

void training_course::begin(const placement& grid, std::uint32_t side_by_side, const std::string& kind) {
  shape_ = {grid.width, grid.depth};
  view_.kind = kind;
  steps_[kind].begin(grid, side_by_side);
  view_.peak_bytes.clear();
  view_.reserved_bytes.clear();
  view_.data_waits.clear();
  view_.transports.clear();
  times_.begin();
}

bool training_course::hear(time_point now, std::uint32_t rank, const progress& x) {
  stuck_ = 0;
  steps_.at(view_.kind).hear(rank, x);
  view_.peak_bytes[rank] = x.peak_bytes;
  view_.reserved_bytes[rank] = x.reserved_bytes;
  view_.transports[rank] = x.transport;
  times_.hear(now, rank, x.parts);
  if (x.data_wait_for.empty())
    view_.data_waits.erase(rank);
  else
    view_.data_waits[rank] = {x.data_wait_ms, x.data_wait_for};
  if (x.step_ms > 0)
    shortest_ms_ = std::min(shortest_ms_.value_or(x.step_ms), x.step_ms);
  if (x.at.steps <= view_.steps_done)
    return false;
  view_.steps_by_depth[shape_.depth] += x.at.steps - view_.steps_done;
  view_.steps_done = x.at.steps;
  tell_of(view_, x.result);
  view_.step_ms = x.step_ms;
  losses_.add(x.at.steps, x.result.loss);
  pace_.add(now, x.at.steps);
  return true;
}

void training_course::hear(const evaluated& x, const job_specification& job) {
  if (x.current <= evaluated_by_ && x.at < evaluated_at_)
    return; // said again, when others have told of a later one
  evaluated_by_ = std::max(evaluated_by_, x.current);
  if (std::exchange(evaluated_at_, x.at) != x.at)
    evaluation_sums_.clear();
  const auto known = evaluation_sums_.size();
  for (std::size_t i = 0; i < x.sums.size(); ++i)
    evaluation_sums_[x.first_replica + static_cast<std::uint32_t>(i)] = x.sums[i];
  if (evaluation_sums_.size() != job.virtual_replicas || known == evaluation_sums_.size())
    return; // not all yet, or said again
  double sum = 0;
  for (const auto& [replica, of_replica] : evaluation_sums_)
    sum += of_replica;
  view_.evaluated_steps = static_cast<std::int64_t>(x.at.steps);
  view_.validation_loss = sum / static_cast<double>(job.data.validation_samples());
  validation_losses_.add(x.at.steps, view_.validation_loss);
}

void training_course::reached(std::uint64_t steps, const commit_result& result) {
  view_.steps_done = steps;
  if (result.step != no_step)
    tell_of(view_, result);
}

training_view training_course::view(const job_specification& job, std::span<const layer_cost> estimates,
                                    const platform_cost& platform) const {
  auto result = view_;
  result.losses = losses_.points();
  result.validation_losses = validation_losses_.points();
  result.steps_per_s = pace_.steps_per_s();
  result.times = times_.means();
  if (!shortest_ms_)
    return result; // nothing is measured
  result.layer_costs = steps().costs(estimates);
  result.other_ms = steps().other_ms_in(shape_);
  refine(result.configurations, job, steps().measured(job, result.layer_costs, platform));
  return result;
}

} // namespace parcae
