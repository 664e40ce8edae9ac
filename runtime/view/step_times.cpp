#include "runtime/view/step_times.hpp"

#include "protocols/base/enum_text.hpp"
#include "protocols/base/text.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace parcae {

step_parts mean_of(const std::vector<slot_times>& x) {
  step_parts result;
  for (const auto member : members_of_step_parts) {
    for (const auto& slot : x)
      result.*member += slot.*member;
    result.*member /= static_cast<double>(std::max<std::size_t>(1, x.size()));
  }
  return result;
}

std::string step_times_of(const job_status& x) {
  const auto slowest = std::ranges::find(x.step_times, x.slowest_slot, &slot_times::slot);
  if (slowest == x.step_times.end())
    return {};
  const auto mean = mean_of(x.step_times);
  const auto share = [](const step_parts& of, double step_parts::*member) { return 100 * of.*member / total_ms(of); };
  const bool alone = x.step_times.size() == 1;
  auto result = fmt::format("  a step takes {:.1f} ms: {}, slowest {} (waits least for others)\n", total_ms(mean),
                            counted(x.step_times.size(), "slot"), x.slowest_slot);
  if (alone)
    result = fmt::format("  a step takes {:.1f} ms\n", total_ms(mean));
  for (std::size_t i = 0; i < step_part_count; ++i) {
    const auto member = members_of_step_parts[i];
    constexpr double shown = 0.05; // %
    if (share(mean, member) < shown && share(*slowest, member) < shown)
      continue;
    result += fmt::format("    {:<10}{:6.1f} %", enum_name(static_cast<step_part>(i)), share(mean, member));
    result += alone ? "\n" : fmt::format("{:8.1f} % of {}\n", share(*slowest, member), x.slowest_slot);
  }
  return result;
}

} // namespace parcae
