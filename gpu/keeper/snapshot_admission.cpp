#include "gpu/keeper/snapshot_admission.hpp"

#include "protocols/model/early_stop.hpp"
#include "protocols/model/model_description.hpp"
#include "protocols/model/snapshot.hpp"

namespace parcae {

snapshot_admission::snapshot_admission(const job_specification& job, generation newest) :
    steps_(job.steps), newest_(newest.value) {
  for (const auto& layer : describe(job.model).layers) {
    auto& parts = sizes_.emplace_back(1 + moments_of(job.optimizer), layer.parameters() * sizeof(float));
    if (layer.buffer_values() > 0)
      parts.push_back(layer.buffer_values() * sizeof(float));
  }
  if (job.patience > 0)
    sizes_.back().push_back(sizeof(validation_course));
}

void snapshot_admission::announce(generation newest) {
  for (auto known = newest_.load(); known < newest.value && !newest_.compare_exchange_weak(known, newest.value);)
    continue;
}

std::string snapshot_admission::problem_of(std::uint32_t layer, const version& at,
                                           const std::vector<std::uint64_t>& sizes) const {
  const bool are_losses = layer == losses_layer && sizes.size() == 1 && sizes[0] <= loss_block_limit_bytes;
  if (!are_losses && (layer >= sizes_.size() || sizes != sizes_[layer]))
    return "layer " + std::to_string(layer) + " is not one of the model, or of another size";
  return problem_of(at);
}

std::string snapshot_admission::problem_of(const version& at) const {
  if (at.by.value > newest_)
    return "version " + to_string(at) + " is of a generation not heard of yet";
  if (at.steps == 0 || at.steps > steps_)
    return "the job has no version " + to_string(at);
  return {};
}

} // namespace parcae
