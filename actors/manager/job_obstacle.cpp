#include "actors/manager/job_obstacle.hpp"

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/service_planning.hpp"
#include "planner/choose/throughput.hpp"
#include "planner/situation/memory.hpp"
#include "planner/situation/placement.hpp"
#include "protocols/base/text.hpp"
#include "protocols/choreography/messages.hpp"

#include <algorithm>

namespace parcae {

bool has_layers_of(const job_specification& job, std::string_view processor) {
  return job.model.kind != "plugin" || processor.find(plugin_fact(job.model.plugin)) != processor.npos;
}

bool may_use(const job_specification& job, std::string_view began_on, std::string_view processor) {
  return has_layers_of(job, processor) && (!job.reproducible || began_on.empty() || processor == began_on);
}

std::string obstacle_to(const job_specification& job, const fleet_offer& offer) {
  if (offer.workers.empty())
    return "waits for workers; start some with `parcae-node`";
  if (job.resume.steps > 0 && offer.keepers == 0)
    return "waits for a keeper that can read the checkpoint at " + job.resume.folder +
           "; start one with `parcae-node --role keeper`";
  const auto first =
      std::ranges::find_if(offer.workers, [&](const auto& x) { return has_layers_of(job, x.processor); });
  if (first == offer.workers.end())
    return "waits for workers with the plug-in that " + job.model.path +
           " is of; start some with `parcae-node --plugin FILE`, SHA-256 " + job.model.plugin;
  if (job.transport == "nccl" && std::ranges::none_of(offer.workers, [](const auto& x) { return x.memory.of_device; }))
    return "waits for workers with a GPU, as NCCL moves tensors of no others; or set job.transport to auto or tcp";
  std::uint32_t instances = 0, slots = 0, others = 0;
  slot_memory least;
  for (const auto& x : offer.workers) {
    if (!may_use(job, first->processor, x.processor)) {
      others += x.slots;
      continue;
    }
    ++instances;
    slots += x.slots;
    least = least_of(least, x.memory);
  }
  const auto unusable = others == 0
                            ? ""
                            : "; " + counted(others, "slot") + " of other processors" +
                                  (job.model.kind == "plugin" ? " or plug-ins" : "") + " would compute other bits";
  if (job.resume.steps == 0 && instances < job.min_instances) // else it has begun before
    return "waits for instances: " + std::to_string(instances) + " of " + std::to_string(job.min_instances) +
           " that job.min_instances asks for" + unusable;
  if (job.serves()) {
    const auto grid = grid_for(job, slots, least);
    return grid.width > 0 ? "" : grid.why + unusable;
  }
  const auto facts = facts_of(job);
  if (job.min_width * job.min_depth <= slots) { // nearly always the least one fits, and no other need be looked at
    std::vector<double> layer_ms;
    for (const auto& x : facts.costs)
      layer_ms.push_back(x.forward_ms + x.backward_ms);
    if (memory_problem(job, facts.costs, partition_layers(layer_ms, job.min_depth), job.min_width, offer.keepers, least)
            .empty())
      return {};
  }
  auto best = best_configuration(job, {facts.costs, {}, {}, least, offer.keepers}, slots);
  if (best.width > 0)
    return {};
  return best.reason + unusable;
}

} // namespace parcae
