#include "tests/simulation/keeper_faults.hpp"

#include <algorithm>
#include <memory>

namespace parcae {

struct keeper_faults {
  using machine = keeper_machine;
  using row = machine::row;
  using on = keeper_trigger;

  static row& at(std::vector<row>& rows, keeper_trigger on, std::string_view condition) {
    return *std::ranges::find_if(rows, [&](const row& x) { return x.on == on && x.condition == condition; });
  }

  static void say(machine& m, keeper_report x) { m.effects_.push_back(keeper_effects::say{std::move(x)}); }

  static void silent_about_arrivals(std::vector<row>& rows) {
    at(rows, on::caught_up, "it holds more than it said").act = nullptr;
  }

  static void deaf_to_newer_generations(std::vector<row>& rows) {
    at(rows, on::guard, "").act = nullptr;
    at(rows, on::confirm, "").act = [](machine& m, const auto& x) {
      const auto& told = x.template as<confirm>();
      m.shards_.confirm(told.newest, told.safe, told.chain);
      say(m, kept{m.job_, m.shards_.held(), m.shards_.results(), {}});
    };
  }

  static void delivers_nothing(std::vector<row>& rows) {
    at(rows, on::transfer, "").act = [](machine& m, const auto& x) {
      m.effects_.push_back(keeper_effects::send{m.part_.plan.next, x.template as<transfer>().at, {}});
    };
  }

  static void has_nothing_when_asked(std::vector<row>& rows) {
    for (const auto* condition : {"it is that one", ""})
      at(rows, on::abort_generation, condition).act = [](machine& m, const auto& x) {
        say(m, aborted{x.template as<abort_generation>().current, {}, no_step, {}, {}});
      };
  }

  static void silent_about_what_it_read(std::vector<row>& rows) {
    at(rows, on::read, "").act = [](machine& m, const auto& x) { say(m, x.template as<restored>()); };
  }

  static void writes_nothing(std::vector<row>& rows) {
    at(rows, on::checkpoint, "").act = [](machine& m, const auto& x) {
      const auto& told = x.template as<checkpoint>();
      m.effects_.push_back(keeper_effects::write{told, {}, {}});
    };
  }

  /// The machine runs with these rows from now on.
  static simulation::keeper_spoiler with(void (*spoil)(std::vector<row>&)) {
    const auto rows = std::make_shared<std::vector<row>>(machine::rows);
    spoil(*rows);
    return [rows](machine& m) { m.rules_ = rows.get(); };
  }
};

} // namespace parcae

namespace parcae::simulation {

const std::vector<keeper_fault>& all_keeper_faults() {
  using f = keeper_faults;
  constexpr std::string_view unending = "the job does not end";
  static const std::vector<keeper_fault> result{
      {"silent_about_arrivals", f::with(f::silent_about_arrivals), 2, unending},
      {"deaf_to_newer_generations", f::with(f::deaf_to_newer_generations), 2, unending},
      {"delivers_nothing", f::with(f::delivers_nothing), 12, unending},
      {"has_nothing_when_asked", f::with(f::has_nothing_when_asked), 12, "those to whom nothing happened"},
      {"writes_nothing", f::with(f::writes_nothing), 2, unending},
      {"silent_about_what_it_read", f::with(f::silent_about_what_it_read), 100, unending},
  };
  return result;
}

} // namespace parcae::simulation
