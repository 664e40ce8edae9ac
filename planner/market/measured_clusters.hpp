#pragma once

// Clusters that others measured: what they took and cost, where one worker more stops to help, how long a checkpoint
// takes. "Speeding up Deep Learning with Transient Servers" (ICAC'19; public data cake-lab/transient-deep-learning) and
// "Characterizing and Modeling Distributed Training with Transient Cloud GPU Servers" (CM-DARE, ICDCS'20; public data
// cake-lab/CM-DARE). Pure.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parcae::market {

struct measured_cluster {
  unsigned k80 = 0, p100 = 0, v100 = 0;
  bool is_spot = false;

  auto operator<=>(const measured_cluster&) const = default;
};

struct measured_mean {
  double seconds = 0;
  double usd = 0;
  unsigned runs = 0;
};

/// Columns k80, p100, v100, market, seconds, usd: means over the runs. Throws parse_error.
std::map<measured_cluster, measured_mean> parse_clusters(std::string_view text);

/// Columns gpu, servers, model, workers, steps_per_s; of one GPU, number of servers and model: by workers from 1 on.
/// Throws parse_error.
std::vector<double> parse_speeds(std::string_view text, std::string_view gpu, unsigned servers, std::string_view model);

/// The first number, from 1 on, at which one more adds less than this fraction, and so do several, each of them; none:
/// there is none. `rates`: of 1, 2, …; several are asked for since pipelines of some numbers have no use for one more.
std::optional<std::size_t> knee(std::span<const double> rates, double fraction = 0.1);

/// y = a + b·x by least squares.
struct linear_fit {
  double a = 0, b = 0;
  double r2 = 0; ///< fraction of the variance that it explains
};
linear_fit fitted(std::span<const double> x, std::span<const double> y);

/// Columns mb, seconds: how long a checkpoint takes. Throws parse_error.
linear_fit checkpoint_seconds(std::string_view text);

} // namespace parcae::market
