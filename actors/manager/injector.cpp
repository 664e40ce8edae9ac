#include "actors/manager/injector.hpp"

#include "protocols/base/text.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>

namespace parcae {

tl::expected<std::vector<std::size_t>, detailed_error> choose_victims(const preempt_order& order) {
  std::vector<std::size_t> chosen;
  const auto& living = order.living;
  for (const auto& name : order.what.names) {
    auto i = std::find_if(living.begin(), living.end(), [&](const auto& x) { return x.name == name; });
    if (i == living.end())
      return tl::unexpected(
          detailed_error{parcae_error::unknown_instance, name + "; `parcae status` lists the living ones"});
    auto position = static_cast<std::size_t>(i - living.begin());
    if (std::find(chosen.begin(), chosen.end(), position) == chosen.end())
      chosen.push_back(position);
  }
  if (order.what.any == 0)
    return chosen;
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < living.size(); ++i)
    if (living[i].worker && !living[i].leaving && std::find(chosen.begin(), chosen.end(), i) == chosen.end())
      rest.push_back(i);
  if (rest.size() < order.what.any)
    return tl::unexpected(
        detailed_error{parcae_error::too_few_instances, std::to_string(order.what.any) + " asked for, " +
                                                            std::to_string(rest.size()) + " workers without notice"});
  // The standard leaves std::shuffle's use of the generator open; this is the same everywhere.
  std::mt19937_64 random(order.what.seed);
  for (std::uint32_t i = 0; i < order.what.any; ++i) {
    std::swap(rest[i], rest[i + random() % (rest.size() - i)]);
    chosen.push_back(rest[i]);
  }
  return chosen;
}

injector_actor::behavior_type injector(injector_actor::pointer self, manager_actor registry) {
  return {[=](const preempt_order& order) -> caf::result<preempt_outcome> {
    const auto chosen = choose_victims(order);
    if (!chosen)
      return caf::make_error(chosen.error().code, chosen.error().details);
    preempt_outcome result;
    for (auto i : *chosen) {
      const auto& x = order.living[i];
      auto notice_ms = order.what.notice_ms;
      spdlog::info("preempting {} with a notice of {}", x.name, text_of_duration(std::chrono::milliseconds(notice_ms)));
      if (notice_ms > 0)
        self->send(registry, leaving_notice{x.name, x.life, notice_ms, "preempted by command"});
      caf::anon_send(x.handle, die_atom_v, notice_ms); // see release_instance in registry.cpp
      result.names.push_back(x.name);
    }
    return result;
  }};
}

} // namespace parcae
