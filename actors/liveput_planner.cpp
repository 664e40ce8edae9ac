#include "actors/liveput_planner.hpp"

namespace parcae {

planner_actor::behavior_type liveput_planner(planner_actor::pointer, job_specification job, link_cost link) {
  return {[=](const plan_query& x) {
    return plan_answer{{x.what.request, best_configuration(job, x.what.costs, link, x.what.slots, x.what.slot_bytes)}};
  }};
}

} // namespace parcae
