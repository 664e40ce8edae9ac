#include "protocols/values/job_keys.hpp"
#include "runtime/job/job_file.hpp"

// What is other in a job that goes on from a checkpoint.

namespace parcae {

std::uint64_t schedule_start(const optimizer_specification& before, const optimizer_specification& now,
                             std::uint64_t steps) {
  const bool same = before.schedule == now.schedule && before.warmup_steps == now.warmup_steps;
  return same ? before.schedule_from : steps;
}

namespace {

/// What moved is the same by its digest; the order of samples follows from how many sources there are, and from these.
std::vector<std::uint32_t> weights_of(const data_specification& x) {
  std::vector<std::uint32_t> result;
  for (const auto& source : x.source)
    result.push_back(source.weight);
  return result;
}

} // namespace

std::vector<std::string> changed_keys(const job_specification& from, const job_specification& to, on_resume of) {
  std::vector<std::string> result;
  for (const auto& key : job_keys()) {
    const auto before = value_of(key, {from}), after = value_of(key, {to});
    if (key.resume == of && before != after)
      result.push_back(path_of(key) + " (" + after + ", was " + before + ")");
  }
  if (of == on_resume::fixed && weights_of(from.data) != weights_of(to.data))
    result.push_back("data.source (other weights)");
  if (of == on_resume::shape && from.model.exported != to.model.exported)
    result.push_back("model.path (another model is there now)");
  if (of == on_resume::fixed && from.model.weights_digests != to.model.weights_digests)
    result.push_back("model.weights (another version 0)");
  if (of == on_resume::fixed && from.model.plugin != to.model.plugin)
    result.push_back("model.path (the plug-in is another build)");
  return result;
}

} // namespace parcae
