#include "planner/market/spot_lives.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace parcae::market {

namespace {

constexpr double least_tail = 1e-8;
constexpr double max_risk = 8; // that is remembered
constexpr double least_risk = 1e-6;

} // namespace

// A second start replaces the first.
void spot_lives::start(double now_h, bool own) {
  open_h_ = now_h;
  is_own_ = own;
}

void spot_lives::ended(double now_h, bool failed) {
  if (open_h_)
    lives_.push_back({std::max(0.0, now_h - *open_h_), failed});
  open_h_.reset();
  if (failed)
    ++failures_;
}

void spot_lives::launched(double now_h) {
  start(now_h, true);
  own_age_ = 0;
  probe_age_.reset();
}

void spot_lives::taken_over(double now_h) {
  if (!is_probed_)
    return;
  ended(now_h, false);
  is_probed_ = false;
  probe_age_.reset();
}

void spot_lives::probed(double now_h, bool up) {
  if (up) {
    start(now_h, false);
    is_probed_ = true;
    probe_age_ = 0;
    return;
  }
  if (is_probed_)
    ended(now_h, true);
  is_probed_ = false;
  ++failures_;
  probe_age_.reset();
}

void spot_lives::seen(double now_h, bool up) {
  if (up_ == up)
    return;
  if (up)
    start(now_h, false);
  else if (up_)
    ended(now_h, true);
  up_ = up;
}

double spot_lives::hazard::until(double age_h) const {
  if (age_h <= 0)
    return 0;
  double result = 0, last = 0;
  for (const auto& [age, step] : steps) {
    if (age >= age_h)
      break;
    result += step;
    last = age;
  }
  return result + (age_h - last) * tail;
}

spot_lives::hazard spot_lives::learnt() const {
  auto all = lives_;
  if (age_h_ > 0)
    all.push_back({age_h_, false});
  std::set<double> ages;
  for (const auto& x : all)
    if (x.failed)
      ages.insert(x.hours);
  hazard result;
  for (const double age : ages) {
    const auto failed =
        std::ranges::count_if(all, [&](auto& x) { return x.failed && std::abs(x.hours - age) <= 1e-9; });
    const auto at_risk = std::ranges::count_if(all, [&](auto& x) { return x.hours + 1e-9 >= age; });
    result.steps.emplace_back(age, static_cast<double>(failed) / static_cast<double>(at_risk));
  }
  result.tail = result.steps.empty() ? least_tail : std::max(result.steps.back().second, least_tail);
  return result;
}

void spot_lives::observe(double now_h, double account_usd, double usd_per_h) {
  if (account_usd - account_usd_ > 1e-9 && usd_per_h > 0)
    probed_h_ += (account_usd - account_usd_) / usd_per_h;
  account_usd_ = account_usd;
  age_h_ = open_h_ ? std::max(0.0, now_h - *open_h_) : 0;
  const auto known = learnt();
  double from = 0, risk = 0;
  if (open_h_) {
    auto& last = is_own_ ? own_age_ : probe_age_;
    from = last.value_or(std::max(age_h_ - tick_h_, 0.0));
    last = age_h_;
    risk = std::max(0.0, known.until(age_h_) - known.until(from));
  }
  if (!open_h_ || !is_own_)
    own_age_.reset();
  if (risk <= 0 && known.steps.empty() && (open_h_ || failures_ > 0))
    risk = known.tail * tick_h_;
  else if (risk <= 0 && open_h_ && from >= known.steps.back().first)
    risk = known.tail * std::max(0.0, age_h_ - from);
  if (risk <= 0 && failures_ > 0)
    risk = known.tail * tick_h_;
  if (risk > 0 || failures_ > 0)
    add({risk, static_cast<double>(failures_)});
  failures_ = 0;
}

void spot_lives::add(const exposure& x) {
  exposures_.push_back(x);
  double sum = 0;
  for (const auto& y : exposures_)
    sum += y.risk;
  for (; sum - exposures_.front().risk >= max_risk; exposures_.pop_front())
    sum -= exposures_.front().risk;
  burst_ = 1;
  if (sum < 1)
    return;
  double risk = 0, failures = 0;
  bool is_newest = true;
  for (auto y = exposures_.rbegin(); y != exposures_.rend(); ++y) {
    risk += y->risk;
    failures += y->failures;
    if (risk > 1 + 1e-9 && !is_newest)
      break;
    // The newest alone says nothing if nothing happened in no time.
    if (!is_newest || risk > least_risk || failures > 0)
      burst_ = std::max(burst_, failures / (risk > 0 ? risk : least_risk));
    if (risk > 1 + 1e-9)
      break;
    is_newest = false;
  }
}

double spot_lives::expected_h() const {
  const auto known = learnt();
  double result = 0, alive = 1, age = std::max(age_h_, probed_h_);
  for (const auto& [at, step] : known.steps)
    if (at > age + 1e-12) {
      result += alive * (at - age);
      alive *= std::exp(-burst_ * step);
      age = at;
    }
  const double ends = 1 - std::exp(-burst_ * known.tail);
  return result + alive * tick_h_ / (ends > 1e-9 ? ends : burst_ * known.tail);
}

} // namespace parcae::market
