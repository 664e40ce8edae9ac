#include "tests/simulation/faults.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <variant>

// Rows of a worker's table made wrong, one a fault.

namespace parcae {

using namespace worker_effects;

struct worker_faults {
  using phase = worker_phase;
  using when = worker_trigger;
  using machine = worker_machine;
  using trigger = worker_machine::trigger;
  using rows = std::vector<worker_machine::row>;
  using spoiler = void (*)(rows&);

  /// The first row for that, of those with this condition if one is given.
  template <class Rows>
  static auto& at(Rows& all, worker_trigger on, worker_phase from, std::string_view condition = {}) {
    return *std::ranges::find_if(all, [&](const auto& x) {
      return x.on == on && x.from.contains(from) && (condition.empty() || x.condition == condition);
    });
  }

  /// What the product does there.
  static void as_it_is(machine& m, const trigger& x, worker_trigger on, worker_phase from) {
    at(machine::rows, on, from).act(m, x);
  }

  static void stale_decide(rows& all) {
    at(all, when::decide, phase::stopped, "its step is open here").holds = [](const auto& m, const auto& x) {
      return x.template as<parcae::decide>().result.step != no_step && !m.state_.voided;
    };
  }
  static void open_step_dropped(rows& all) {
    at(all, when::decide, phase::stopped, "its step is open here").holds = [](const auto&, const auto&) {
      return false;
    };
  }
  static void gradients_kept(rows& all) {
    std::ranges::find_if(all, [](const auto& x) {
      return x.on == when::decide && x.from.contains(phase::aborted) && !x.holds;
    })->act = at(all, when::decide, phase::absent).act;
  }

  static void repeated_prepare_unanswered(rows& all) { at(all, when::prepare_heard, phase::prepared).act = nullptr; }
  static void abort_unanswered(rows& all) {
    std::ranges::find_if(all, [](const auto& x) {
      return x.on == when::abort && x.from.contains(phase::absent) && !x.holds;
    })->act = nullptr;
  }
  static void followed_ahead(rows& all) {
    at(all, when::settled, phase::cut).act = [](auto& m, const auto& x) {
      for (auto& held : m.held_)
        if (std::ranges::find(m.followed_, held) != m.followed_.end())
          ++held.at.steps;
      as_it_is(m, x, when::settled, phase::cut);
    };
  }
  static void followed_kept(rows& all) {
    at(all, when::abort, phase::absent, "layers that went ahead were kept in vain").holds =
        [](const auto&, const auto&) { return false; };
  }
  static void nothing_moved(rows& all) { at(all, when::activate, phase::prepared).act = nullptr; }
  static void begins_at_another_step(rows& all) {
    at(all, when::moved, phase::moving, "a rank").act = [](auto& m, const auto& x) {
      as_it_is(m, x, when::moved, phase::moving);
      auto& at = std::get<begin>(m.effects_.back()).at;
      at.steps -= at.steps > 0;
    };
  }
  static void begins_again(rows& all) {
    at(all, when::activate, phase::running).act = at(all, when::moved, phase::moving, "a rank").act;
  }
  static void last_word_unsaid(rows& all) {
    at(all, when::activate, phase::running).act = at(all, when::activate_heard, phase::running).act;
  }

  static void stop_unheard(rows& all) {
    at(all, when::stop_heard, phase::running).act = nullptr;
    at(all, when::stop, phase::running).act = nullptr;
  }
  static void snapshots_unsent(rows& all) {
    at(all, when::committed, phase::aborting).act = [](auto& m, const auto& x) {
      as_it_is(m, x, when::committed, phase::aborting);
      std::erase_if(m.effects_, [](const auto& each) { return std::holds_alternative<send_snapshot>(each); });
    };
  }
  static void snapshot_not_asked_for(rows& all) {
    at(all, when::protect, phase::running, "a snapshot is due").act = nullptr;
  }

  static void last_version_unsent(rows& all) {
    at(all, when::no_step_left, phase::running).act = [](auto& m, const auto& x) {
      m.protected_at_ = {};
      as_it_is(m, x, when::no_step_left, phase::running);
    };
  }

  static void void_stage_kept(rows& all) {
    for (auto& row : all)
      if (row.on == when::step_failed)
        row.act = [](auto& m, const auto& x) {
          m.state_.voided = false;
          as_it_is(m, x, when::step_failed, phase::running);
        };
  }
  static void void_version_said(rows& all) {
    at(all, when::settled, phase::aborted).act = [](auto& m, const auto& x) {
      as_it_is(m, x, when::settled, phase::aborted);
      std::get<parcae::aborted>(std::get<say>(m.effects_.back()).what).at = m.state_.at;
    };
  }
  static void complete_step_unsaid(rows& all) {
    at(all, when::settled, phase::aborted).act = [](auto& m, const auto& x) {
      as_it_is(m, x, when::settled, phase::aborted);
      std::get<parcae::aborted>(std::get<say>(m.effects_.back()).what).complete = no_step;
    };
  }

  static void cut_unheard(rows& all) { at(all, when::abort_heard, phase::running).act = nullptr; }
  static void trains_when_superseded(rows& all) {
    at(all, when::superseded, phase::running).act = nullptr;
    at(all, when::superseded, phase::running).to.reset();
  }
  static void left_behind_kept(rows& all) {
    at(all, when::left_behind, phase::aborted).act = nullptr;
    at(all, when::left_behind, phase::aborted).to.reset();
  }
  static void part_kept_at_release(rows& all) {
    at(all, when::released, phase::delivered).act = nullptr;
    at(all, when::released, phase::delivered).to.reset();
  }
  static void kept_when_forgotten(rows& all) {
    at(all, when::forget, phase::stopped).act = nullptr;
    at(all, when::forget, phase::stopped).to.reset();
  }

  /// The machine runs with these rows from now on.
  static std::function<void(machine&)> with(spoiler spoil) {
    const auto all = std::make_shared<rows>(machine::rows);
    spoil(*all);
    return [all](machine& m) { m.rules_ = all.get(); };
  }
};

} // namespace parcae

namespace parcae::simulation {

std::function<void(worker_machine&)> spoiler_of(fault what) {
  using all = worker_faults;
  static const std::map<fault, all::spoiler> spoilers{
      {fault::stale_decide, all::stale_decide},
      {fault::open_step_dropped, all::open_step_dropped},
      {fault::gradients_kept, all::gradients_kept},
      {fault::repeated_prepare_unanswered, all::repeated_prepare_unanswered},
      {fault::abort_unanswered, all::abort_unanswered},
      {fault::followed_ahead, all::followed_ahead},
      {fault::followed_kept, all::followed_kept},
      {fault::nothing_moved, all::nothing_moved},
      {fault::begins_at_another_step, all::begins_at_another_step},
      {fault::begins_again, all::begins_again},
      {fault::last_word_unsaid, all::last_word_unsaid},
      {fault::stop_unheard, all::stop_unheard},
      {fault::snapshots_unsent, all::snapshots_unsent},
      {fault::snapshot_not_asked_for, all::snapshot_not_asked_for},
      {fault::last_version_unsent, all::last_version_unsent},
      {fault::void_stage_kept, all::void_stage_kept},
      {fault::void_version_said, all::void_version_said},
      {fault::complete_step_unsaid, all::complete_step_unsaid},
      {fault::cut_unheard, all::cut_unheard},
      {fault::trains_when_superseded, all::trains_when_superseded},
      {fault::left_behind_kept, all::left_behind_kept},
      {fault::part_kept_at_release, all::part_kept_at_release},
      {fault::kept_when_forgotten, all::kept_when_forgotten},
  };
  const auto known = spoilers.find(what);
  return known == spoilers.end() ? nullptr : worker_faults::with(known->second);
}

} // namespace parcae::simulation
