#include "runtime/web/history.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>

namespace parcae {

std::uint32_t slots_in(const status_reply& x) {
  std::uint32_t result = 0;
  for (const auto& i : x.instances)
    if (i.role == "worker" && i.state != "lost")
      result += i.slots;
  return result;
}

history_point point_of(const status_reply& x) {
  history_point result;
  result.wall_us = x.wall_us;
  result.slots = slots_in(x);
  result.keepers = static_cast<std::uint32_t>(
      std::ranges::count_if(x.instances, [](const auto& i) { return i.role == "keeper" && i.state != "lost"; }));
  const auto job = std::ranges::find_if(x.jobs, &job_status::detailed);
  if (job == x.jobs.end())
    return result;
  result.job = job->id;
  result.steps = job->steps_done;
  result.loss = job->loss_steps < 0 ? std::nan("") : job->loss;
  result.gradient_norm = job->gradient_norm;
  result.learning_rate = job->learning_rate;
  if (job->state == "running") {
    result.samples_per_s = job->phase == "running" ? job->samples_per_s : 0;
    result.used = job->width * job->depth;
    if (!job->decisions.empty() && !job->decisions.back().forecast.empty()) {
      const auto& next = job->decisions.back().forecast.front();
      result.forecast_mean = next.mean;
      result.forecast_low = next.low;
      result.forecast_high = next.high;
    }
  }
  return result;
}

void web_history::add(const history_point& x) {
  if (!points_.empty()) {
    const auto& last = points_.back();
    if (x.wall_us < last.wall_us - between_us_) // another manager's clock: points stay in order
      std::erase_if(points_, [&](const auto& y) { return y.wall_us >= x.wall_us; });
    else if (x.wall_us < last.wall_us + between_us_ && x.slots == last.slots && x.job == last.job)
      return;
  }
  points_.push_back(x);
  if (points_.size() <= max_points)
    return;
  std::vector<history_point> fewer;
  for (std::size_t i = 0; i < points_.size(); i += 2)
    fewer.push_back(points_[i]);
  points_ = std::move(fewer);
  between_us_ = (points_.back().wall_us - points_.front().wall_us) / static_cast<std::int64_t>(points_.size());
}

std::string web_history::json() const {
  boost::json::object result;
  const history_point none;
  for_each_field(none, [&](const char* name, const auto&) { result[name] = boost::json::array(); });
  for (const auto& point : points_)
    for_each_field(point, [&]<class Field>(const char* name, const Field& field) {
      auto& list = result[name].as_array();
      if constexpr (std::is_same_v<Field, double>) {
        if (!std::isfinite(field)) {
          list.emplace_back(nullptr);
          return;
        }
      }
      list.emplace_back(field);
    });
  return boost::json::serialize(result);
}

} // namespace parcae
