#pragma once

// How long steps really take: measured where a job has been, and what that says about the model elsewhere. Pure.

#include "planner/cost/step_model.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/values/shape.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <span>
#include <vector>

namespace parcae {

/// A step in a configuration that the job was in.
struct measured_step {
  shape what;
  double ms = 0;
  double error = 0;         ///< relative; ms is within it with 95 %
  std::uint64_t steps = 0;  ///< made there and measured
  std::uint64_t visits = 0; ///< generations
  /// Whether ms is made of the processor time that executors took, and of bytes over the link: ranks had to wait for a
  /// core, so that the clock says more about this machine than about the job. Not where it is known what machines have.
  bool by_cpu = false;

  friend bool operator==(const measured_step&, const measured_step&) = default;
};

/// A duration with its interval of 95 %.
struct step_estimate {
  double ms = 0;
  double low_ms = 0;
  double high_ms = 0;
};

/// How far the model is off, learnt from the configurations that were visited: measured over predicted is exp(b + e)
/// with one normal b for the job and a normal e for each configuration. Before anything is measured b is taken to be 0
/// ± 12 % and e ± 10 % (standard deviations); e's is mended by the residuals, as if three of them had been seen before.
class model_error {
public:
  /// Predicted and measured milliseconds of a configuration.
  struct check {
    double predicted_ms = 0;
    double measured_ms = 0;
  };

  explicit model_error(std::span<const check> seen);

  /// Of a configuration that was not visited.
  step_estimate corrected(double predicted_ms) const;

private:
  double log_factor_ = 0;
  double deviation_ = 0; ///< of the logarithm
};

/// Keeps what ranks report, by configuration.
class step_meter {
public:
  static constexpr std::size_t most = 64; ///< the newest reports of a configuration that count

  /// Ranks that wait for a core longer than this share of a step are crowded.
  static constexpr double crowded = 0.05;

  /// A generation begins; the first report of each of its ranks is of a cold start and does not count. `side_by_side`:
  /// the most ranks that share a machine.
  void begin(const placement& grid, std::uint32_t side_by_side = 1);

  void hear(std::uint32_t rank, const progress& x);

  /// All configurations that were visited for long enough, in order. `sizes`: per layer, of which only sizes are read.
  std::vector<measured_step> measured(const job_specification& job, std::span<const layer_cost> sizes,
                                      const platform_cost& platform) const;

  /// The layers with the times measured, on waking apart; means over the newest reports of all configurations with as
  /// many ranks side by side as now, where there are none with another number; without what these cost each other.
  /// `estimates` unchanged where there are none at all.
  std::vector<layer_cost> costs(std::span<const layer_cost> estimates) const;

  /// See platform_cost: by ranks side by side, the processor time that layers took over that with the fewest ranks.
  std::vector<double> crowding() const;

  /// The same, of one configuration, with the passes on waking that there were in the means.
  std::vector<layer_cost> costs_in(const shape& what, std::span<const layer_cost> estimates) const;

  /// The largest rank's processor time per step that is no layer's, in one configuration; 0: was not visited.
  double other_ms_in(const shape& what) const;

private:
  struct mean {
    double value = 0;
    std::uint64_t count = 0;

    /// Unless it is less than that, or no number.
    void add(double x, double least = 0);
    /// Holds until the next value comes.
    void assume(double x);
  };

  /// Of one layer's passes of one kind; see layer_time.
  struct pass_means {
    mean all, awake, waking;
  };

  struct layer_means {
    std::array<pass_means, std::size(pass_kinds)> kinds; ///< in that order

    void add(const layer_time& x);
    /// Better than nothing.
    void assume(const layer_time& x);
  };

  struct visit {
    std::vector<std::uint32_t> first_layer; ///< as last seen
    std::uint32_t side_by_side = 1;         ///< as last seen
    std::uint64_t steps = 0;                ///< of rank 0
    std::uint64_t visits = 0;
    std::deque<double> step_ms;             ///< by the clock, newest last
    mean waited;                            ///< share of a step
    std::map<std::uint32_t, mean> other_ms; ///< by stage
    std::map<std::uint32_t, layer_means> layers;
  };

  std::map<shape, visit> visits_;
  using all_layers = std::map<std::uint32_t, layer_means>;

  /// Crowding with `side_by_side` ranks side by side.
  double crowding_of(std::uint32_t side_by_side) const;

  std::map<std::uint32_t, all_layers> layers_; ///< by ranks side by side
  std::uint32_t side_by_side_ = 1;
  shape current_;
  std::uint32_t depth_ = 1;
  std::map<std::uint32_t, std::uint64_t> heard_; ///< by rank: steps at its last report of this generation
};

} // namespace parcae
