#pragma once

// Sees what happens in a simulation, holds it to what must hold, and remembers it.

#include "tests/simulation/account.hpp"
#include "tests/simulation/change_watch.hpp"
#include "tests/simulation/observed.hpp"
#include "tests/simulation/timeline.hpp"

#include <map>
#include <string>
#include <vector>

namespace parcae::simulation {

class witness {
public:
  explicit witness(const conducted_job& job) : changes_(job) {
    seen_.layers = job.layers();
    seen_.serves = job.specification.serves();
  }

  /// By the manager.
  void told(const slot_id& to, const command& what, time_point now);
  /// It arrives.
  /// `answers`: nobody else is waited for.
  void given(const slot_id& to, const command& what, time_point now, bool answers = true);
  void said(const slot_id& from, const report& what, time_point now);
  /// By the manager.
  void heard(const slot_id& from, const report& what, time_point now);
  void manager_starts();
  void manager_goes_on() {
    changes_.begins_anew();
    time_.manager_was_away();
  }
  void durable(const durable_state& now, time_point when);
  void begins(generation g, std::uint64_t step);
  void exchanged(generation g, std::uint64_t step, time_point now);
  void applied(generation g, const version& at, std::uint32_t layer, std::uint64_t bits);
  void holds(const slot_id& who, inventory what);
  void keeps(std::uint32_t layer, const version& at, std::uint64_t bits);

  /// Something is done to it, or to what it needs.
  void disturbed(const slot_id& who, time_point now);
  void joined(const slot_id& who, bool pristine);
  void gone(const slot_id& who);

  /// What was given and should have been answered by now.
  void look_for_answers(time_point now);
  /// By a manager that does not stand still.
  void look_for_end_of_change(time_point now) { object(changes_.problem(now)); }

  /// What a user is told of a change.
  void look_at_account(const change_status& told, nanoseconds longest_step, nanoseconds slack) {
    object(time_.problem_with(told, longest_step, slack));
  }

  void object(const std::string& problem);
  const std::vector<std::string>& problems() const { return problems_; }
  const observed& seen() const { return seen_; }

private:
  void look_for_answers(const slot_id& of, time_point now);
  void is_disturbed(const slot_id& who);

  /// What a rank said last of its generation.
  struct last_word {
    generation of;
    bool said_active = false; ///< after it, and nothing since
  };

  observed seen_;
  change_watch changes_;
  trained_time time_;
  std::map<slot_id, last_word> stopped_;
  std::map<slot_id, std::map<std::pair<std::size_t, generation>, time_point>> unanswered_; ///< by command
  std::vector<std::string> problems_;
};

} // namespace parcae::simulation
