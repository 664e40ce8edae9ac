#include "tests/simulation/faults.hpp"

#include <algorithm>
#include <memory>

// Rows of a keeper's table made wrong, one a fault.

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
    at(rows, on::activate, "").act = [](machine& m, const auto& x) {
      m.effects_.push_back(keeper_effects::send{m.part_.plan.next, x.template as<activate>().at, {}});
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
  static std::function<void(machine&)> with(void (*spoil)(std::vector<row>&)) {
    const auto rows = std::make_shared<std::vector<row>>(machine::rows);
    spoil(*rows);
    return [rows](machine& m) { m.rules_ = rows.get(); };
  }
};

namespace simulation {

std::function<void(keeper_machine&)> keeper_spoiler_of(fault what) {
  using all = keeper_faults;
  switch (what) {
  case fault::silent_about_arrivals:
    return all::with(all::silent_about_arrivals);
  case fault::deaf_to_newer_generations:
    return all::with(all::deaf_to_newer_generations);
  case fault::delivers_nothing:
    return all::with(all::delivers_nothing);
  case fault::has_nothing_when_asked:
    return all::with(all::has_nothing_when_asked);
  case fault::writes_nothing:
    return all::with(all::writes_nothing);
  case fault::silent_about_what_it_read:
    return all::with(all::silent_about_what_it_read);
  default:
    return nullptr;
  }
}

} // namespace simulation
} // namespace parcae
