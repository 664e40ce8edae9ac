#include "planner/market/window_search.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/table.hpp"

#include <algorithm>
#include <cmath>

namespace parcae::market {

namespace {

// Of ResNet-110 (megabytes) and the parameter server (megabytes a second).
constexpr double parameters_mb = 11.5;
constexpr double worker_mb_s = 142;
constexpr double server_mb_s = 1200;
constexpr double in_host_mb_s = 10'000;

constexpr unsigned max_instances = 1000;

double rounded(double x, int digits) {
  const double unit = std::pow(10, digits);
  return std::nearbyint(x * unit) / unit;
}

struct worker {
  const spotdnn_kind* kind = nullptr;
  double batch = 0;
  double step_s = 0; ///< alone
  double computing_s = 0;
};

std::vector<worker> workers_of(const std::vector<spotdnn_kind>& kinds) {
  std::vector<worker> result;
  for (const auto& x : kinds) {
    const double batch = x.batch_per_gpu * x.gpus;
    const double step_s = batch / x.samples_per_s;
    const double sending_s = 2 * parameters_mb / worker_mb_s - 2 * x.gpus * parameters_mb / in_host_mb_s;
    result.insert(result.end(), x.quota, {&x, batch, step_s, step_s - sending_s});
  }
  std::ranges::stable_sort(result, {}, &worker::step_s);
  return result;
}

// Workers share the server's link once it is full, some of the time.
double bandwidth(double workers) {
  if (worker_mb_s * workers <= server_mb_s)
    return worker_mb_s;
  const double crowded = std::min(0.8 * std::sqrt(workers) - 1.92, 1.0);
  return crowded * server_mb_s / workers + (1 - crowded) * worker_mb_s;
}

spotdnn_choice predicted(const std::vector<const worker*>& chosen, double loss) {
  const auto n = static_cast<double>(chosen.size());
  double samples_per_s = 0, steps_per_s = 0, usd_per_h = 0;
  for (const auto* x : chosen) {
    const double step_s = x->computing_s + 2 * parameters_mb / bandwidth(n);
    samples_per_s += x->batch / step_s;
    steps_per_s += 1 / step_s;
    usd_per_h += x->kind->usd_per_h;
  }
  const double batch = rounded(samples_per_s / steps_per_s, 1);
  const double steps = rounded((-0.2 * batch + 2507.6) * std::sqrt(n) / (loss - 0.5) - 876.5, 0);
  spotdnn_choice result;
  result.seconds = rounded(batch * steps / samples_per_s, 2);
  result.usd = rounded(usd_per_h * result.seconds / 3600, 6);
  for (const auto* x : chosen) {
    const auto found = std::ranges::find(result.instances, x->kind->name, &std::pair<std::string, unsigned>::first);
    if (found == result.instances.end())
      result.instances.emplace_back(x->kind->name, 1);
    else
      ++found->second;
  }
  return result;
}

} // namespace

std::vector<spotdnn_kind> parse_spotdnn(std::string_view text) {
  enum : std::size_t { type, gpus, quota, price, rate, batch };
  const table all(text, {"type", "gpus", "quota", "spot_usd_per_h", "samples_per_s", "batch_per_gpu"});
  std::vector<spotdnn_kind> result;
  for (const auto& row : all.rows())
    result.push_back({row.text(type), static_cast<unsigned>(row.whole(gpus, 64)),
                      static_cast<unsigned>(row.whole(quota, max_instances)), row.number(price, 0, max_usd_per_h),
                      row.number(rate, 1e-6, 1e12), row.number(batch, 1, 1e9)});
  return result;
}

std::optional<spotdnn_choice> window_search(const std::vector<spotdnn_kind>& kinds, double loss, double seconds) {
  const auto all = workers_of(kinds);
  std::optional<spotdnn_choice> best;
  std::vector<const worker*> chosen;
  for (std::size_t n = 1; n < all.size(); ++n)
    for (std::size_t first = 0; first < all.size(); ++first) {
      chosen.clear();
      for (std::size_t i = 0; i < n; ++i)
        chosen.push_back(&all[(first + i) % all.size()]);
      const auto x = predicted(chosen, loss);
      if (x.seconds > 0 && x.seconds <= seconds && (!best || x.usd < best->usd))
        best = x;
    }
  return best;
}

} // namespace parcae::market
