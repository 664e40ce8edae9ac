#include "protocols/model/early_stop.hpp"

#include "protocols/model/model_description.hpp"

#include <span>

namespace parcae {

bool is_evaluated(std::uint64_t steps, const job_specification& job) {
  return job.evaluate_every > 0 && (steps % job.evaluate_every == 0 || steps == job.steps);
}

bool may_be_last(std::uint64_t steps, const job_specification& job) {
  return is_evaluated(steps, job) && (steps == job.steps || job.patience > 0);
}

std::optional<std::uint32_t> layer_with_course(const job_specification& job) {
  if (job.patience == 0)
    return std::nullopt;
  return static_cast<std::uint32_t>(describe(job.model).layers.size() - 1);
}

validation_course after(const validation_course& before, double loss, const job_specification& job) {
  const auto rounded = static_cast<float>(loss);
  if (static_cast<double>(rounded) < static_cast<double>(before.best) - job.min_delta)
    return {rounded, 0};
  return {before.best, before.worse + 1};
}

std::vector<std::byte> bytes_of(const validation_course& x) {
  const auto bytes = std::as_bytes(std::span(&x, 1));
  return {bytes.begin(), bytes.end()};
}

} // namespace parcae
