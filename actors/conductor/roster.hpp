#pragma once

// Who there is for a job: workers and keepers, which of them can be used, and what became of those that left. Pure.

#include "planner/cost/step_meter.hpp"
#include "planner/situation/inventory.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/choreography/messages.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// The newest generations that a slot was told to prepare, to compute, and that RELEASE was sent of.
struct generations_commanded {
  generation prepared;
  generation activated;
  generation released{}; ///< over its present connections
};

/// When a slot came, and how those before it of its name and index ended.
struct past_lives {
  using time_point = std::chrono::steady_clock::time_point;

  std::uint64_t age = 0; ///< order of arrival
  time_point came;
  std::optional<time_point> lost; ///< the last one before it
  unsigned short_lives = 0;       ///< in a row, up to that one
};

struct slot_state {
  using time_point = std::chrono::steady_clock::time_point;
  using milliseconds = std::chrono::milliseconds;

  participant where;
  bool keeper = false;
  slot_memory memory;
  machine_facts machine;
  past_lives past;
  inventory held;                        ///< as last heard; keepers: as far as it can be true
  std::optional<time_point> answered_at; ///< PREPARE, STOP, ABORT or DECIDE, as heard
  inventory reported;                    ///< keepers: as last heard
  std::optional<time_point> leaving;     ///< when it will be gone
  bool loaded = false;                   ///< workers: it has the data
  proven_sizes passes{};                 ///< workers, if the job serves
  std::string arrival;                   ///< workers: why there is planned once it has
  std::string data_problem;              ///< workers: why it could not load it when it last tried
  int data_problems = 0;                 ///< times in a row
  std::optional<time_point> excluded;    ///< not used until then; time_point::max() for good
  bool asked_back = false;               ///< its inventory was asked for, to be answered until `excluded`
  std::string unused_because; ///< why it is, or was until it can be used again, excluded or without a new place
  milliseconds back_off{0};   ///< the last one; doubles
  /// It failed to prepare beside a healthy generation, in which it may have a place: no new place until then.
  std::optional<time_point> no_new_place;
  bool heard = false;                 ///< keepers: it said what it holds
  std::vector<commit_result> results; ///< keepers: of the versions held
  std::vector<layer_digest> digests;  ///< keepers: of the final version
  bool reading = false;               ///< keepers: RESTORE was sent and not answered
  std::optional<restored> read;       ///< keepers: the answer
  generations_commanded commanded;

  bool usable() const { return !keeper && loaded && !leaving && !excluded && !no_new_place; }
  bool excluded_for_good() const { return excluded == time_point::max(); }
};

class roster {
public:
  using time_point = slot_state::time_point;
  using milliseconds = slot_state::milliseconds;

  static constexpr milliseconds longest_back_off{30'000};
  static constexpr std::size_t lives_remembered = 1000;
  static constexpr std::chrono::seconds short_life{10}; ///< one that ends sooner has cost more than it did
  static constexpr int data_attempts = 2;               ///< what is mounted a moment late is there at the second
  static constexpr int returns_awaited = 8;             ///< back-offs up to this many times the first

  explicit roster(milliseconds first_back_off) : first_back_off_(first_back_off) {}

  std::map<slot_id, slot_state>& slots() { return slots_; }
  const std::map<slot_id, slot_state>& slots() const { return slots_; }
  auto workers() { return slots_ | std::views::filter(is_worker); }
  auto workers() const { return slots_ | std::views::filter(is_worker); }
  auto keepers() { return slots_ | std::views::filter(is_keeper); }
  auto keepers() const { return slots_ | std::views::filter(is_keeper); }
  bool has_keepers() const { return !keepers().empty(); }

  /// Null: it is not here.
  slot_state* find(const slot_id& id);
  const slot_state* find(const slot_id& id) const;

  /// One that was lost may join again. `kind`: of instance; empty: all are alike.
  slot_state& join(const slot_id& id, time_point now, const std::string& kind = {});

  void lose(const slot_id& id, time_point now);

  /// What a life that was lost, and is here again, had been told then. Once.
  std::optional<generations_commanded> come_back(const slot_id& id);

  void leaves(const slot_id& id, time_point expires);
  const std::set<slot_id>& leaving() const { return leaving_; }

  /// Not used until then. One that is excluded for good stays so: false.
  bool exclude(slot_state& slot, time_point until);

  /// For its next back-off: the first, or twice the last.
  bool exclude_for_a_while(slot_state& slot, time_point now) { return exclude(slot, now + next_back_off(slot)); }
  void refuse_new_place(slot_state& slot, time_point now);

  /// One whose lives were short, at least twice in a row, gets no new place until a while behind its last loss: each
  /// time twice as long. False: it may have one.
  bool hold_back(slot_state& slot, time_point now);

  /// What kept them from a place was lack of room beside a generation.
  void allow_new_places();

  /// What went wrong before says nothing of what comes.
  void forgive();

  /// Not later than the end of any exclusion, or lack of room, that ends, as found last: so that no report has to look
  /// at all slots.
  std::optional<time_point> next_return() const { return next_return_; }
  void find_next_return();

  /// Workers that can have a place.
  std::uint32_t usable() const;

  /// Whether a worker has still to say that it has the data.
  bool loading() const;

  /// One line if all workers said, more than once, that they cannot load the data; else empty.
  std::string data_problem_of_all() const;

  /// What all are to train on: the first one's data, or what the job goes on from. False: this is other data.
  bool agrees(const std::string& data_digest);
  /// Of every byte of large data: the slot that has read others before, if there is one.
  std::optional<slot_id> differs_wholly(const slot_id& id, const std::string& whole_digest);
  const std::string& data_digest() const { return data_digest_; }
  void set_data_digest(std::string x) { data_digest_ = std::move(x); }
  /// Somebody here has had it.
  bool data_found() const { return data_found_; }

  /// Keepers where snapshots go: those that stay, or if none does those under notice. Only who said what it holds.
  std::vector<participant> snapshot_targets() const;

  /// Holders that are not excluded; if `hoping`, also those who will be asked back and have not failed too often.
  std::vector<holder> holders(bool hoping) const;

  /// Memory of the smallest slot that is usable, or if none is trains to its end; 0: unknown.
  slot_memory memory() const;

  /// The machine with most of such slots for its cores: all ranks wait for the slowest.
  void tell_of_busiest_machine(platform_cost& to, std::uint32_t threads) const;

  /// Of all slots; one that says nothing of its machine is alone on it.
  std::size_t machine_count() const;

  /// The most ranks that one machine has; 1 where machines are not known.
  std::uint32_t side_by_side(const placement& grid) const;

  /// Of its instances; several are joined by "+".
  std::string kind_of(const placement& grid) const;

private:
  struct shared_machine {
    machine_facts facts;
    std::uint32_t slots = 0;
  };

  static bool is_keeper(const std::pair<const slot_id, slot_state>& x) { return x.second.keeper; }
  static bool is_worker(const std::pair<const slot_id, slot_state>& x) { return !x.second.keeper; }
  /// Where can be trained. If no slot is usable, those that train to their end: what is known of steps is of them.
  std::vector<const slot_state*> training_slots() const;
  std::map<std::string, shared_machine> machines() const; ///< of them, by id; those not known are left out
  struct lost_life {
    slot_id slot;
    generations_commanded commanded;
    time_point at;
    unsigned short_lives = 0; ///< this one too
  };

  milliseconds next_back_off(slot_state& slot) const;
  void look_again_at(time_point t);

  milliseconds first_back_off_;
  std::map<slot_id, slot_state> slots_;
  std::map<slot_id, std::string> kinds_; ///< of their instances, where they are not alike
  std::set<slot_id> leaving_;            ///< under notice
  std::optional<time_point> next_return_;
  std::deque<lost_life> lost_lives_; ///< newest last
  std::uint64_t arrivals_ = 0;
  std::string data_digest_;
  std::optional<std::pair<slot_id, std::string>> whole_digest_; ///< the first one's
  bool data_found_ = false;
};

} // namespace parcae
