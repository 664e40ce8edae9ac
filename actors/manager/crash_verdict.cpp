#include "actors/manager/crash_verdict.hpp"

#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae {

std::string verdict_on(const std::vector<instance_crash>& of_job) {
  std::string who;
  std::size_t alike = 0;
  for (const auto& x : of_job)
    if (x.what == of_job.back().what && x.steps == of_job.back().steps) {
      who += (alike++ > 0 ? ", " : "") + x.instance;
    }
  if (alike < max_crashes)
    return {};
  return "it ends whoever computes it: " + who + " were " + of_job.back().what + " after " +
         counted(of_job.back().steps, "step") + "; their last lines are in `parcae logs`";
}

} // namespace parcae
