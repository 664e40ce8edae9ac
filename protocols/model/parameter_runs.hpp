#pragma once

// Which of a layer's parameters the optimizer treats in which way. Torch-free and pure.

#include "protocols/model/model_description.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Consecutive elements of a layer's flat parameters that are treated alike.
struct parameter_run {
  std::uint64_t values = 0;
  double rate_factor = 1; ///< of the learning rate
  bool decays = true;     ///< with the optimizer's weight_decay

  friend bool operator==(const parameter_run&, const parameter_run&) = default;
};

/// All of a layer's parameters, neighbours treated alike joined. A tensor's learning rate is multiplied by the factor
/// of the first pattern of x.rate_factors that its name fits. Unless x.decay_norms_and_biases, tensors of at most one
/// dimension and those named *.bias do not decay (timm's rule; GPT-2's and BERT's recipes have the same). The second of
/// tied tensors is treated as the first.
std::vector<parameter_run> parameter_runs(const model_description& model, std::uint32_t layer,
                                          const optimizer_specification& x);

/// What is wrong with x.rate_factors for a model, beginning with the key; empty: nothing. A pattern that no tensor fits
/// is a misunderstanding.
std::string rate_factors_problem(const model_description& model, const optimizer_specification& x);

/// Whether a text fits a pattern: * stands for any characters, ? for one.
bool fits(std::string_view text, std::string_view pattern);

} // namespace parcae
