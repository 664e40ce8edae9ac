#include "planner/serving/spotserve.hpp"

#include <algorithm>
#include <bit>

namespace parcae::serving {

namespace {

// By the batch's power of two.
std::size_t place_of(std::uint32_t batch) {
  return static_cast<std::size_t>(std::countr_zero(batch));
}

// Keeps the best of what it is given, by the published rule; the first of equals.
class best_of {
public:
  explicit best_of(double asked_per_s) : asked_per_s_(asked_per_s) {}

  void consider(const spotserve_choice& x) {
    if (x.requests_per_s >= asked_per_s_ && (!shortest_ || x.total_ms < shortest_->total_ms))
      shortest_ = x;
    if (!most_ || x.requests_per_s > most_->requests_per_s)
      most_ = x;
  }

  const std::optional<spotserve_choice>& result() const { return shortest_ ? shortest_ : most_; }

private:
  double asked_per_s_;
  std::optional<spotserve_choice> shortest_, most_;
};

} // namespace

batch_cost spotserve_cost(const serving_profile& profile, const batch_form& form, std::uint32_t new_tokens) {
  const auto& layer = profile.layer_by_degree.at(form.degree);
  const double layers = (profile.layers + form.depth - 1) / form.depth;
  const double hops = form.depth - 1;
  const double prompt_parts = form.prompt_parts, token_parts = form.token_parts;
  batch_cost result;
  result.prompt_ms =
      layer[place_of(form.batch / form.prompt_parts)].prompt_ms * layers * (hops + prompt_parts) / prompt_parts +
      profile.prompt_hop_ms / prompt_parts * hops;
  result.token_ms = layer[place_of(form.batch / form.token_parts)].token_ms * layers * (hops + token_parts) +
                    profile.token_hop_ms / token_parts * hops;
  result.total_ms = (result.prompt_ms + result.token_ms * new_tokens + 2 * profile.embedding_ms[place_of(form.batch)]) *
                    profile.factor;
  result.prompt_ms *= profile.factor;
  result.token_ms *= profile.factor;
  return result;
}

std::optional<spotserve_choice> spotserve_choose(const serving_profile& profile, std::uint32_t gpus,
                                                 const spotserve_options& options) {
  if (gpus < options.least_gpus)
    return {};
  const auto max_batch = std::min(options.max_batch, profile.max_batch());
  best_of best(options.asked_per_s);
  // In the published order, as the first of equals is taken.
  for (std::uint32_t degree = 1; degree <= std::min(profile.max_degree, gpus); degree *= 2)
    for (std::uint32_t batch = 1; batch <= max_batch; batch *= 2)
      for (std::uint32_t prompt_parts = 1; prompt_parts <= batch; prompt_parts *= 2)
        for (std::uint32_t token_parts = 1; token_parts <= batch; token_parts *= 2)
          for (auto depth = (options.least_gpus + degree - 1) / degree; depth * degree <= gpus; ++depth)
            if (profile.padded_layers % depth == 0) {
              const batch_form form{degree, depth, batch, prompt_parts, token_parts};
              const auto ms = spotserve_cost(profile, form, options.new_tokens).total_ms;
              const auto width = gpus / (depth * degree);
              best.consider({width, form, ms, width * batch / ms * 1000});
            }
  return best.result();
}

} // namespace parcae::serving
