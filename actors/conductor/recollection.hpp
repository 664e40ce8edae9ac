#pragma once

// What came of each step of a job, as those who computed it say: what is known, what is to be asked for, and what the
// keepers were told of it. Pure.

#include "protocols/client/journal.hpp"
#include "protocols/values/loss_record.hpp"
#include "protocols/values/state.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

class recollection {
public:
  using time_point = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds pause{500}; ///< from one question to the next
  static constexpr std::chrono::seconds settling{5};     ///< the journal has what was known this long ago
  static constexpr int patience = 60;                    ///< questions; what nobody has said then nobody knows

  /// `samples`: in each step. `evaluate_every`: steps between evaluations; 0: none. `begin`: steps that another job
  /// made, which may have evaluated at others.
  recollection(loss_record known, std::uint32_t samples, std::uint64_t evaluate_every = 0, std::uint64_t begin = 0);

  const loss_record& known() const { return known_; }
  /// What came of all steps before, and of the evaluations before each of them, is known, or will not be. By a decision
  /// step v may be known before the evaluation of version v is.
  std::uint64_t complete() const { return complete_; }
  /// What came of all steps before this one was known `settling` ago.
  std::uint64_t settled() const { return settled_; }
  /// Likewise of the first `steps` steps, and the evaluation of the version after them, which is one to be evaluated.
  bool has_all_of(std::uint64_t steps) const;
  bool has_evaluation(std::uint64_t steps) const;

  /// A block of steps that count, up to `limit`. Empty: nothing. For people: what is wrong with it, or which step came
  /// to something else than before; empty: all is well.
  std::string hear(const std::vector<char>& block, std::uint64_t limit);
  /// The step that a generation ended with, as was decided.
  void decide(const commit_result& x);
  /// The version after this number of steps.
  void evaluate(std::uint64_t steps, double loss);
  /// A block of the last steps before this one, with all that was learnt within `settling` and the one before, which
  /// may have been evaluated since; empty: of none. Who goes on from there gets it: the journal may lack it, and those
  /// who computed it go next. They also note with its last step what comes of that version.
  std::vector<char> newest(std::uint64_t until) const;
  /// Steps from this one on are computed again.
  void go_back(std::uint64_t steps);

  /// From which step on somebody is to be asked now, as `committed` are; none: of none, or it was asked just now.
  std::optional<std::uint64_t> ask(time_point now, std::uint64_t committed);
  /// Somebody has just learnt of steps, and is to be asked without a pause.
  void hurry() { next_ = {}; }
  /// Those that were asked last did not know it.
  bool is_stuck() const { return questions_ > 2; }
  /// The next steps that are not known, of those before `committed`, nobody knows.
  void give_up(std::uint64_t committed);
  /// The steps that were given up since this was last asked, for people; empty: none.
  std::string given_up() { return std::exchange(given_up_, {}); }

  /// What this keeper was not told; counts as told.
  std::vector<std::vector<char>> untold(const slot_id& keeper);
  /// It begins anew.
  void forget(const slot_id& keeper) { told_.erase(keeper); }

private:
  void advance();
  /// That is due, not known, and not given up.
  bool awaits_evaluation(std::uint64_t steps) const;

  loss_record known_;
  std::uint32_t samples_;
  std::uint64_t evaluate_every_;
  std::uint64_t complete_ = 0;
  std::uint64_t settled_ = 0, settles_ = 0; ///< that were complete a while ago, and a while after that
  time_point settles_at_;
  std::map<std::uint64_t, double> evaluations_; ///< of versions whose step is not known yet
  std::uint64_t evaluation_given_up_ = 0;       ///< of this version, and of those before
  time_point next_;                             ///< to ask
  std::uint64_t asked_from_ = 0;
  int questions_ = 0; ///< from there, and nobody knew
  std::string given_up_;
  std::map<slot_id, loss_record> told_; ///< keepers
};

} // namespace parcae
