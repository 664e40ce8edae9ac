#include "planner/market/loss_curve.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/measured_clusters.hpp"
#include "planner/market/table.hpp"

#include <algorithm>
#include <cmath>

namespace parcae::market {

namespace {

// What falls first, when letters and words are learnt, follows no such law.
constexpr double left_out = 0.25;
constexpr std::size_t blocks = 200; // means of neighbours: as good, and fewer

// The law with this shift, and the share of the variance that it leaves.
std::pair<loss_law, double> with_shift(double shift, std::span<const double> steps, std::span<const double> losses) {
  std::vector<double> x;
  for (const double step : steps)
    x.push_back(1 / (step + shift));
  const auto line = fitted(x, losses);
  return {{line.b, shift, line.a}, 1 - line.r2};
}

} // namespace

std::vector<step_loss> parse_losses(std::string_view text) {
  const table all(text, {"step", "loss"});
  std::vector<step_loss> result;
  for (const auto& row : all.rows()) {
    const step_loss x{row.number(0, 1, 1e15), row.number(1, -1e9, 1e9)};
    if (!result.empty() && x.step <= result.back().step)
      row.fail("step must be above that of the line before");
    result.push_back(x);
  }
  return result;
}

std::optional<double> loss_law::steps_to(double loss) const {
  if (loss <= floor)
    return {};
  return std::max(scale / (loss - floor) - shift, 1.0);
}

std::optional<loss_law> fitted_loss(std::span<const step_loss> all) {
  if (all.size() < 10)
    return {};
  const double from = all.front().step + left_out * (all.back().step - all.front().step);
  const auto first = std::ranges::lower_bound(all, from, {}, &step_loss::step) - all.begin();
  const auto late = all.subspan(static_cast<std::size_t>(first));
  const auto width = std::max<std::size_t>(late.size() / blocks, 1);
  std::vector<double> steps, losses;
  for (std::size_t i = 0; i + width <= late.size(); i += width) {
    step_loss sum;
    for (const auto& x : late.subspan(i, width)) {
      sum.step += x.step;
      sum.loss += x.loss;
    }
    steps.push_back(sum.step / static_cast<double>(width));
    losses.push_back(sum.loss / static_cast<double>(width));
  }
  // For a shift the others are a line's; the best shift by search, as what is left has one valley.
  std::optional<loss_law> best;
  double least = 1;
  constexpr int per_decade = 40, decades = 4;
  for (int i = -1; i <= per_decade * decades; ++i) {
    const double shift =
        i < 0 ? 0 : all.back().step * std::pow(10.0, static_cast<double>(i) / per_decade - decades + 1);
    const auto [law, left] = with_shift(shift, steps, losses);
    if (law.scale > 0 && left < least) {
      least = left;
      best = law;
    }
  }
  return best;
}

} // namespace parcae::market
