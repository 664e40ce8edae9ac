#include "gpu/gateway/request_meter.hpp"

#include <algorithm>
#include <cmath>

namespace parcae {

namespace {

constexpr double minute_ms = 60'000, least_ms = 10'000;
constexpr std::size_t most_values = 8'192;

std::int64_t second_of(double now_ms) {
  return static_cast<std::int64_t>(now_ms / 1000);
}

} // namespace

void minute_sum::add(double now_ms, double x) {
  const auto number = second_of(now_ms);
  if (first_ms_ < 0)
    first_ms_ = now_ms;
  auto& to = seconds_[static_cast<std::size_t>(number) % seconds_.size()];
  if (to.number != number)
    to = {number, 0};
  to.sum += x;
}

double minute_sum::of_minute(double now_ms) const {
  double result = 0;
  for (const auto& x : seconds_)
    if (x.number > second_of(now_ms) - static_cast<std::int64_t>(seconds_.size()))
      result += x.sum;
  return result;
}

double minute_sum::per_s(double now_ms) const {
  const auto since_ms = std::clamp(first_ms_ < 0 ? 0 : now_ms - first_ms_, least_ms, minute_ms);
  return of_minute(now_ms) / since_ms * 1000;
}

void minute_quantiles::add(double now_ms, double x) {
  if (values_.size() == most_values)
    values_.pop_front();
  values_.emplace_back(now_ms, x);
}

wait_quantiles minute_quantiles::quantiles(double now_ms) {
  while (!values_.empty() && values_.front().first < now_ms - minute_ms)
    values_.pop_front();
  if (values_.empty())
    return {};
  std::vector<double> all;
  for (const auto& x : values_)
    all.push_back(x.second);
  const auto at = [&](double share) {
    const auto rank = std::ceil(share * static_cast<double>(all.size()));
    const auto place = all.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
    std::ranges::nth_element(all, place);
    return *place;
  };
  return {at(0.5), at(0.99)};
}

void request_meter::came(double now_ms, std::uint32_t prompt) {
  arrivals_.add(now_ms, 1);
  looked_at_.add(now_ms, 1);
  prompts_.add(now_ms, prompt);
}

void request_meter::turned_away(double now_ms, std::uint64_t count) {
  if (count == 0)
    return;
  arrivals_.add(now_ms, static_cast<double>(count));
  refused += count;
}

void request_meter::token(double now_ms, double since_ms, bool first) {
  ++tokens_;
  new_tokens_.add(now_ms, 1);
  (first ? first_ : between_).add(now_ms, since_ms);
}

void request_meter::answered(double now_ms, const answered_request& x) {
  ++answered_;
  answers_.add(now_ms, 1);
  answer_tokens_.add(now_ms, x.tokens);
  if (newest_.size() == most_answered_told)
    newest_.pop_front();
  newest_.push_back(x);
}

request_figures request_meter::figures(double now_ms) {
  const auto mean = [&](const minute_sum& all, const minute_sum& count) {
    return all.of_minute(now_ms) / std::max(1.0, count.of_minute(now_ms));
  };
  request_figures x;
  x.answered = answered_;
  x.refused = refused;
  x.failed = failed;
  x.tokens = tokens_;
  x.arrivals_per_s = arrivals_.per_s(now_ms);
  x.tokens_per_s = new_tokens_.per_s(now_ms);
  x.mean_prompt = mean(prompts_, looked_at_);
  x.mean_answer = mean(answer_tokens_, answers_);
  x.first_token = first_.quantiles(now_ms);
  x.between_tokens = between_.quantiles(now_ms);
  return x;
}

} // namespace parcae
