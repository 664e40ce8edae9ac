#include "actors/conductor/phase.hpp"

#include <array>

namespace parcae {

namespace {

constexpr auto last = static_cast<std::size_t>(phase::ended);

constexpr std::array<phase_facts, last + 1> facts{{
    {.of = phase::recovering, .name = "recovering", .is_unsettled = true},
    {.of = phase::waiting, .name = "waiting", .waits = true, .plans_at_once = true},
    {.of = phase::planning, .name = "planning", .asks_planner = true, .stands_still = true},
    {.of = phase::preparing, .name = "preparing", .stands_still = true},
    {.of = phase::running,
     .name = "running",
     .trains = true,
     .is_calm = true,
     .plans_at_once = true,
     .asks_planner = true},
    {.of = phase::readying, .name = "readying", .trains = true},
    {.of = phase::warming, .name = "warming", .trains = true},
    {.of = phase::stopping, .name = "stopping", .stands_still = true, .is_unsettled = true},
    {.of = phase::clearing, .name = "clearing", .stands_still = true},
    {.of = phase::aborting, .name = "aborting", .stands_still = true},
    {.of = phase::deciding, .name = "deciding", .stands_still = true},
    {.of = phase::activating, .name = "activating", .stands_still = true},
    {.of = phase::finishing, .name = "finishing", .is_final = true},
    {.of = phase::ended, .name = "ended", .is_over = true},
}};

static_assert([] {
  for (std::size_t i = 0; i <= last; ++i)
    if (facts[i].of != static_cast<phase>(i))
      return false;
  return true;
}());

struct trigger_text {
  trigger_kind of;
  const char* text;
};

constexpr std::array<trigger_text, static_cast<std::size_t>(trigger_kind::over) + 1> texts{{
    {trigger_kind::due, "it is time to plan"},
    {trigger_kind::nobody, "there is no slot to plan with"},
    {trigger_kind::chosen, "the planner answered"},
    {trigger_kind::all_answered, "all answers are in"},
    {trigger_kind::all_stopped, "all ranks stopped unasked"},
    {trigger_kind::place_lost, "a rank of g is lost, or failed"},
    {trigger_kind::source_lost, "who sends g shards is lost, or failed"},
    {trigger_kind::part_lost, "a participant of g+1 is lost"},
    {trigger_kind::lost, "a slot is lost"},
    {trigger_kind::broken, "communication failed in g"},
    {trigger_kind::next_broken, "communication failed in g+1"},
    {trigger_kind::refused, "a participant cannot prepare g+1"},
    {trigger_kind::unreachable, "two participants of g+1 cannot reach each other"},
    {trigger_kind::failed_alive, "a slot failed, and lives"},
    {trigger_kind::late, "the limit passed"},
    {trigger_kind::leaving, "the time that slots have left has changed"},
    {trigger_kind::notice, "a slot is under notice"},
    {trigger_kind::last_moment, "the last moment of those who alone hold a stage"},
    {trigger_kind::came, "a slot comes that is new, or was lost"},
    {trigger_kind::rank_came, "a rank of g comes that is new, or was lost"},
    {trigger_kind::source_came, "who sends g shards comes, and is new, or was lost"},
    {trigger_kind::keeper_came, "a keeper comes"},
    {trigger_kind::returned, "a slot has a new connection"},
    {trigger_kind::loading, "a worker is told to load the data"},
    {trigger_kind::asked_back, "the exclusion of a slot is over"},
    {trigger_kind::silent, "a slot does not say what it holds"},
    {trigger_kind::says_prepared, "PREPARED of g+1"},
    {trigger_kind::says_warmed, "WARMED of g+1"},
    {trigger_kind::says_stopped, "STOPPED of g"},
    {trigger_kind::says_active, "ACTIVE of g"},
    {trigger_kind::says_aborted, "ABORTED"},
    {trigger_kind::says_decided, "DECIDED of g"},
    {trigger_kind::says_progress, "PROGRESS or SERVED of g"},
    {trigger_kind::says_evaluated, "EVALUATED of g"},
    {trigger_kind::says_kept, "KEPT"},
    {trigger_kind::says_restored, "RESTORED"},
    {trigger_kind::says_recalled, "RECALLED"},
    {trigger_kind::first_commit, "the first step of g is committed"},
    {trigger_kind::rank_heard, "a rank of g said where it ended"},
    {trigger_kind::keeper_heard, "a keeper has said what it holds"},
    {trigger_kind::newer_kept, "keepers hold another version whole"},
    {trigger_kind::written, "a checkpoint is on disk"},
    {trigger_kind::not_written, "a checkpoint could not be written"},
    {trigger_kind::kept, "what keepers hold, or is known of it, changes"},
    {trigger_kind::closing, "the manager ends"},
    {trigger_kind::over, "done, failed or cancelled"},
}};

static_assert([] {
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i].of != static_cast<trigger_kind>(i))
      return false;
  return true;
}());

} // namespace

const phase_facts& facts_of(phase x) {
  return facts.at(static_cast<std::size_t>(x));
}

std::string to_string(phase x) {
  return facts_of(x).name;
}

std::string to_string(trigger_kind x) {
  return texts.at(static_cast<std::size_t>(x)).text;
}

std::string names_of(const phases& all) {
  std::string result;
  std::size_t count = 0;
  for (const auto& x : facts)
    if (all.contains(x.of)) {
      result += (result.empty() ? "" : ", ") + std::string(x.name);
      ++count;
    }
  return count == last ? "any" : result;
}

} // namespace parcae
