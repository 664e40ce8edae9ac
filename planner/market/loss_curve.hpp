#pragma once

// How many steps a loss takes, from the losses of the steps so far: l(j) = scale/(j + shift) + floor by least squares,
// as Optimus (EuroSys 2018) has it; of descent whose rate does not fall. Pure.

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace parcae::market {

struct step_loss {
  double step = 0; ///< from 1 on
  double loss = 0; ///< of the batch
};

/// Columns step, loss, as `parcae export --curve` writes them; steps rise. Throws parse_error.
std::vector<step_loss> parse_losses(std::string_view text);

struct loss_law {
  double scale = 0, shift = 0, floor = 0;

  double at(double step) const { return scale / (step + shift) + floor; }

  /// None: the loss tends to no less than `floor`.
  std::optional<double> steps_to(double loss) const;
};

/// Of at least ten steps; none: there are fewer, or the loss does not fall.
std::optional<loss_law> fitted_loss(std::span<const step_loss> steps);

} // namespace parcae::market
