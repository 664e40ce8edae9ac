#pragma once

// What the manager asks its clouds for, and what it gives back: the budget policy (purchase.hpp) on instances that come
// late, or not at all, or unasked. A function of what is, what was asked for and options; no clock, no message. Pure.

#include "planner/market/purchase.hpp"
#include "protocols/values/market.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace parcae::market {

/// An instance of a pool that is there.
struct rented_instance {
  std::string name, pool;
  double joined_s = 0;  ///< by the wall, as all times here
  bool leaving = false; ///< under notice
  double process_s = 0; ///< age of its process when it joined, as it says; 0: not known
  double machine_s = 0; ///< of its machine; likewise
  double earlier_s = 0; ///< so much before, at most, it may have joined a manager that is gone
};

/// The job that trains, or waits.
struct renting_job {
  std::uint64_t id = 0;
  job_budget budget; ///< nothing set: it takes what comes, and nothing is asked for or given back
  double submitted_s = 0;
  double samples_left = 0;
  double spent_usd = 0;
  double share_used = 0.95; ///< as purchase_state has it
  double state_gb = 0;      ///< a copy
  std::uint32_t least = 1;  ///< instances before it begins
  bool has_begun = false;   ///< it has trained
  /// Rates of 0, 1, … instances, max_instances() at most, and seconds of changes, as measured; no rates: nothing is
  /// known yet.
  purchase_options figures = {};
  std::string kind = {};                     ///< of instance, that they are of; empty: all are alike
  std::map<std::string, double> speeds = {}; ///< of an instance of other kinds, as measured, over that of one of it
};

struct renting_facts {
  double now_s = 0;
  std::vector<rented_instance> instances; ///< that live
  std::vector<pool_quote> quotes;         ///< as the feed has them now
  std::vector<pool_word> words;           ///< of the newest answer of the hook
  std::optional<renting_job> job;         ///< none: nothing is needed
};

struct renting_order {
  std::vector<pool_order> pools;   ///< one that is not named stays as it is
  std::vector<std::string> let_go; ///< instances to be given notice
  std::string place;  ///< where it trains, see place(): the rest waits until all that is rented there has come
  double way_usd = 0; ///< egress of a move that begins now
  std::optional<purchase> decision;
  bool money_is_spent = false;                ///< the job is to stop where it can go on from
  double late_s = 0;                          ///< behind the deadline, at least; 0: it may yet be in time
  std::string why;                            ///< a sentence
  std::map<std::string, std::string> missing; ///< by pool, a line: what was asked for and did not come
};

class renter {
public:
  /// A job trains in one place with one kind at a time, of which there are one pool of spot instances and one on demand
  /// at most, with prices; pools of one kind have as many slots. Else throws std::invalid_argument, a line that says
  /// what to change. `courses`: of chance, of which a decision's spreads are;
  /// 0: none. `place`: where a manager before trained; one that is in no pool is none.
  renter(std::vector<instance_pool> pools, const std::vector<egress_price>& paths, double interval_s,
         std::size_t courses = 0, const std::string& place = {});

  /// Instances in one place, at most.
  std::uint32_t max_instances() const;

  /// Once an interval.
  renting_order decide(const renting_facts& x);

  /// As renting_order::place, between decisions: "us-west-2a", or "us-west-2a (p3.2xlarge)" where a place has several
  /// kinds.
  const std::string& place() const { return places_[place_].name; }

  /// Those that train there.
  std::set<std::string> pools_of(const std::string& place) const;

  /// Since when an instance that is there is paid for, see began_s(). None: it was not seen yet, or came under notice.
  std::optional<double> paid_since_s(const std::string& instance) const;

  /// Since when an instance is paid for: since its machine was booted, if that was after it was asked for (else it
  /// stood there anyway), else since its process began; both for as long as one is waited for, at most, before it
  /// first may have joined a manager. If it does not say: since it was asked for, or for the pool's usual start time,
  /// if that is less; else since it joined.
  double began_s(const rented_instance& x, std::optional<double> asked_s = {}) const;

  /// "6 spot and 1 on demand in us-west-2a"
  std::string text_of(const holding& x) const;

private:
  struct pool_state {
    std::uint32_t want = 0;
    std::vector<const rented_instance*> there; ///< not under notice, oldest first; within a decision
    std::vector<std::string> going;            ///< under notice; likewise
    std::deque<double> asked_s;                ///< of those that are yet to come, oldest first
    std::map<std::string, double> since_s;     ///< of those that are there
    double full_until_s = 0;                   ///< asked for in vain: no more than there are is wanted until then
    std::string missing;                       ///< as renting_order has it, until one comes
    std::map<std::string, double> let_go_s;    ///< by name, until it is forgotten
  };
  /// What trains together: of one place and kind.
  struct place_pools {
    std::string name, place, kind;
    std::optional<std::size_t> spot, on_demand; ///< index of a pool
  };

  std::vector<double> speeds_of(const renting_job& x) const; ///< by place
  double waited_for_s(const instance_pool& pool) const;
  void look(const renting_facts& x);
  void look(const renting_facts& x, std::size_t pool);
  void settle();
  void take_what_comes();
  std::uint32_t there(std::optional<std::size_t> pool) const;
  std::uint32_t asked(std::optional<std::size_t> pool) const; ///< those that are yet to come
  std::uint32_t count(std::size_t place, bool coming) const;
  double price_of(const renting_facts& x, std::size_t pool) const;
  std::vector<instance_pool> priced(const renting_facts& x) const;
  std::uint32_t max_of(const renting_facts& x, std::size_t pool) const;
  std::vector<place_offer> offers_of(const renting_facts& x) const;
  double coming_s(double now_s, std::optional<std::size_t> pool) const;
  purchase_state state_of(const renting_facts& x) const;
  purchase_options options_of(const renting_job& x) const;
  bool is_spent(const renting_facts& x) const;
  std::optional<holding> found(const renting_facts& x) const;
  std::optional<holding> enough_to_begin(const renting_facts& x) const;
  holding first_of(const renting_facts& x) const;
  std::string why_of(const renting_facts& x, const renting_order& order) const;
  purchase best_of(const renting_facts& x);
  void want(const holding& h, const holding& replaced = {});
  renting_order order_of(double now_s);

  const std::vector<instance_pool> pools_;
  std::vector<place_pools> places_;             ///< those of a place beside each other
  std::vector<std::vector<double>> usd_per_gb_; ///< by place and place
  const double interval_s_;
  const std::size_t courses_;
  std::vector<pool_state> states_; ///< by pool
  std::uint64_t job_ = 0;
  std::optional<holding> found_;       ///< when that job was seen first
  std::optional<purchaser> policy_;    ///< of that job
  std::size_t place_ = 0, target_ = 0; ///< where it trains; where is rented
  holding replaced_;                   ///< trains until what was decided is there
  bool is_reserve_ = false;
};

} // namespace parcae::market
