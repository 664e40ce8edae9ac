#include "forecast/fleet_recorder.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace parcae {

namespace {

// News that come within this part of an interval are one row, as in the published traces (a second of a minute).
constexpr double together = 1.0 / 60;

} // namespace

fleet_recorder::fleet_recorder(std::string method, double interval_s) :
    method_name_(std::move(method)), interval_s_(interval_s) {
  if (!(interval_s > 0))
    throw std::invalid_argument("the planning interval must be longer than 0");
  restart();
}

void fleet_recorder::restart() {
  method_ = make_method(method_name_);
  open_ = {};
  is_open_ = false;
  last_s_ = 0;
  rows_ = available_ = losses_ = announced_ = 0;
  joined_in_.clear();
}

void fleet_recorder::note(const fleet_event& x) {
  events_.push_back(x);
  if (events_.size() > 1)
    events_.back().seconds = std::max(x.seconds, events_[events_.size() - 2].seconds);
  if (events_.size() > max_events)
    events_.pop_front();
  const auto unit = std::gcd(devices_, std::max(x.slots, 1u));
  if (unit == devices_ || !x.joined)
    return take(events_.back());
  devices_ = unit; // what was known counts otherwise now
  restart();
  for (const auto& event : events_)
    take(event);
}

void fleet_recorder::take(const fleet_event& x) {
  if (x.joined == joined_in_.contains(x.instance))
    return;
  if (!is_open_ || x.seconds > open_.seconds + together * interval_s_) {
    close(x.seconds);
    open_ = {};
    open_.seconds = std::max(x.seconds, last_s_);
    is_open_ = true;
  }
  const auto units = std::max(x.slots, 1u) / std::max(devices_, 1u);
  if (x.joined) {
    joined_in_[x.instance] = rows_;
    open_.joined += units;
    available_ += units;
  } else {
    // An instance that comes and goes in one row was never there for longer than a row can tell.
    const auto row = joined_in_.extract(x.instance).mapped();
    open_.lost_joined_in.insert(open_.lost_joined_in.end(), units, row);
    open_.lost += units;
    available_ -= units;
    ++losses_;
    announced_ += x.announced ? 1 : 0;
  }
  open_.available = available_;
}

void fleet_recorder::close(double until_s) {
  if (is_open_) {
    method_->observe(open_);
    last_s_ = open_.seconds;
    is_open_ = false;
    ++rows_;
  }
  if (rows_ == 0)
    return;
  for (std::size_t made = 0; last_s_ + interval_s_ < until_s; ++made) {
    if (made == max_quiet_rows) {
      last_s_ = until_s;
      break;
    }
    last_s_ += interval_s_;
    method_->observe({last_s_, 0, 0, available_, {}});
    ++rows_;
  }
}

fleet_forecast fleet_recorder::forecast(double now_s, std::size_t look_ahead) {
  close(now_s);
  fleet_forecast result;
  result.devices = std::max(devices_, 1u);
  result.announced = losses_ > 0 && 2 * announced_ >= losses_;
  result.future = rows_ == 0 ? single_path(0, std::vector<std::uint32_t>(look_ahead, 0))
                             : method_->forecast(look_ahead, planning_detail);
  return result;
}

} // namespace parcae
