#pragma once

// Which instances are members: the registry's rules as plain code. No clock, no CAF: the time is an argument.

#include "protocols/choreography/messages.hpp"
#include "protocols/wire/errors.hpp"

#include <tl/expected.hpp>

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace parcae {

enum class instance_state : std::uint8_t {
  alive,
  leaving, ///< under notice
  lost,    ///< declared lost, or left; listed until its lease ends
};

std::string to_string(instance_state x);

/// One life of an instance.
struct instance_record {
  using time_point = std::chrono::steady_clock::time_point;

  hello facts;
  std::string holder; ///< of its certificate, as requester::holder
  instance_state state = instance_state::alive;
  time_point joined;
  std::optional<time_point> expires; ///< end of the notice, while leaving
  std::optional<time_point> lost_at; ///< once lost
  bool end_told = false;             ///< somebody said how it ended, once lost
};

class instance_table {
public:
  using time_point = instance_record::time_point;
  using key = std::pair<std::string, incarnation>;

  static constexpr std::size_t max_of_holder = 1'024;

  /// What a HELLO did that is welcome.
  struct membership {
    bool is_new = false;   ///< false: this life is a living one already
    bool returned = false; ///< new in so far as its loss had been declared
    bool warns = false;    ///< it has another warning than before
  };

  /// `manager_life`: of this manager. `managers`: it and those before it. `beyond_loopback`: there are certificates, so
  /// nodes may be on other machines.
  instance_table(std::chrono::milliseconds lease, std::uint64_t manager_life, std::set<std::uint64_t> managers,
                 bool beyond_loopback = false) :
      lease_(lease),
      manager_life_(manager_life), managers_(std::move(managers)), beyond_loopback_(beyond_loopback) {}

  /// Rules: the protocol version must be ours; name, processor and slots must make sense; the host must be one that can
  /// be dialled, and without certificates on loopback, as the manager's own address is; a name is unique among the
  /// living; the same life may say HELLO again, also one whose loss was declared: a shard counts by the chain of
  /// versions, not by the life of its process. A life welcomed by another manager, which knew its jobs, or replaced by
  /// another process of its name, never comes back. One last welcomed by a manager that is not among `managers` must
  /// not come to this one: its journal is an old copy, or it leads no more. Of a life that is known only the warning
  /// and the GPUs' states may change. Of one holder of certificates at most max_of_holder live.
  tl::expected<membership, detailed_error> join(const hello& x, time_point now, const std::string& holder = {});

  /// A notice, and why; the earliest end counts, if it is so by a second. True if the life is a living one and its end
  /// changed.
  bool leave(const key& who, time_point expires, const std::string& reason = {});

  /// Declares a life lost. Edge-triggered: true only the first time.
  bool lose(const key& who, time_point now);

  /// Somebody says how an instance of that name ended: the life that it may be about, a lost one of which nobody has
  /// said so yet, else a living one, whose loss is about to be seen. Null: there is none.
  const instance_record* tell_end(const std::string& name);

  /// Forgets lost lives whose lease is over.
  void expire(time_point now);

  const std::map<key, instance_record>& records() const { return records_; }
  const instance_record* find(const key& who) const;

private:
  std::chrono::milliseconds lease_;
  std::uint64_t manager_life_;
  std::set<std::uint64_t> managers_;
  bool beyond_loopback_;
  std::map<key, instance_record> records_;
  // Newest last, each at most 100'000: more than live through any freeze. A lost life that is forgotten here is taken
  // for a new one.
  std::deque<key> lost_;             ///< that may come back
  std::deque<incarnation> replaced_; ///< that may not
};

} // namespace parcae
