#include "actors/conductor/model_facts.hpp"

#include "protocols/model/model_description.hpp"

namespace parcae {

namespace {

// Only ratios between layers matter until costs are measured.
constexpr double flop_per_ms = 1e7;

} // namespace

model_facts facts_of(const job_specification& job) {
  auto model = describe(job.model);
  auto moments = moments_of(job.optimizer);
  model_facts result;
  for (const auto& layer : model.layers) {
    auto bytes = layer.parameters() * sizeof(float);
    const auto state_bytes = bytes * (1 + moments) + layer.buffer_values() * sizeof(float);
    result.state_bytes.push_back(state_bytes);
    auto forward_ms = layer.forward_flop * job.micro_batch / flop_per_ms;
    const auto activation_bytes =
        job.in_bfloat16() ? layer.bfloat16_activation_bytes : layer.activation_values * sizeof(float);
    result.costs.push_back({{forward_ms, 2 * forward_ms, 0},
                            bytes,
                            layer.output_values() * job.micro_batch * sizeof(float),
                            state_bytes,
                            static_cast<std::uint64_t>(activation_bytes) * job.micro_batch});
  }
  if (job.serves())
    for (const auto values : cached_values(job.model))
      result.cache_bytes.push_back(values * sizeof(float));
  if (const auto& tie = model.tied) {
    const auto bytes = model.layers[tie->first_layer].tensors[tie->first_tensor].values() * sizeof(float);
    result.costs[tie->first_layer].tied_bytes = result.costs[tie->second_layer].tied_bytes = bytes;
  }
  return result;
}

} // namespace parcae
