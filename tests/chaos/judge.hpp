#pragma once

// What must hold of a job whatever was done to the processes that train it.

#include "protocols/client/client.hpp"
#include "tests/chaos/members.hpp"

#include <deque>
#include <set>
#include <string_view>
#include <vector>

namespace parcae {

/// Whether the log of a node's life says that it was refused because a living instance had its name: of the life
/// before, which was not missed yet.
bool name_was_taken(std::string_view log);

/// How much of the model an instance's slots have a place in: two whole ones at most, as it has two slots at most.
double models_of(const job_status& job, std::string_view instance);

/// Looks at one job after the other. Not thread-safe.
class judge {
public:
  /// `members` must outlive it.
  explicit judge(const member_map& members, std::chrono::steady_clock::time_point start) :
      members_(members), start_(start) {}

  using time_point = std::chrono::steady_clock::time_point;

  /// Another job is trained from now on.
  void begin();
  /// The manager hears of nothing in that span, and needs some seconds behind it to know who is there.
  void manager_is_away(time_point from, time_point to) { away_.push_back({from, to}); }
  /// Each status of it, with the changes that were not in the one before.
  void look(const status_reply& x, const job_status& job);

  /// Committed steps were lost; why that is no fault.
  std::vector<std::string> take_news() { return std::exchange(news_, {}); }
  std::vector<std::string> take_faults() { return std::exchange(faults_, {}); }

  struct totals {
    std::uint64_t changes = 0;
    std::uint64_t replayed = 0; ///< steps computed again, those included that were under way
    std::uint64_t lost = 0;     ///< committed ones of them
    std::uint64_t losses = 0;   ///< changes that lost such
  };
  const totals& sums() const { return sums_; }

private:
  struct grid {
    std::uint32_t width;
    std::uint32_t depth;
    std::vector<std::string> slots; ///< by rank
  };

  /// What was done to it of which a loss may come that is noticed in that span; empty: nothing.
  std::string cause_of_loss(const member& x, time_point noticed, time_point until) const;
  void check_loss(const instance_status& x);
  void check_change(const job_status& job, const change_status& x);
  std::uint64_t last_trained(const job_status& job, std::uint64_t before, std::uint64_t lost) const;
  void check_depth(const job_status& job, const change_status& x, const std::string& text);

  struct span {
    time_point from, to;
  };

  const member_map& members_;
  const std::chrono::steady_clock::time_point start_;
  std::map<std::uint64_t, grid> grids_; ///< by generation, as far as seen
  /// Version that each generation began at, as far as seen; 0: only its change was.
  std::map<std::uint64_t, std::uint64_t> bases_;
  std::set<std::pair<std::string, incarnation>> lost_lives_;
  /// Version that the keepers had, when.
  std::deque<std::pair<std::chrono::steady_clock::time_point, std::uint64_t>> protected_;
  std::deque<span> away_;        ///< in order
  std::uint64_t changed_to_ = 0; ///< generation that the last change led to
  std::vector<std::string> news_, faults_;
  totals sums_;
};

} // namespace parcae
