#pragma once

// The connections between executors in a simulation: of generations, whose ranks step together, and of snapshots.

#include "protocols/choreography/choreography.hpp"
#include "protocols/choreography/snapshots.hpp"
#include "protocols/model/snapshot.hpp"
#include "tests/simulation/engine.hpp"
#include "tests/simulation/stage_caches.hpp"
#include "tests/simulation/witness.hpp"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace parcae::simulation {

/// A layer's state.
struct layer_state {
  version at;
  std::uint64_t bits = 0;
};

/// Layers on their way to a keeper.
struct parcel {
  job_id job;
  snapshot_permit permit;
  commit_result result;
  std::vector<std::pair<std::uint32_t, layer_state>> layers;
  std::vector<std::shared_ptr<const shard_bytes>> losses{}; ///< come first
  bool under_way = false;                                   ///< to a keeper that has not refused it
  double share_of_link = 1;                                 ///< that it takes
};

/// What a source says of a layer that goes ahead of a change.
struct fed {
  enum class kind { base, step, cold, end };

  kind what;
  std::uint32_t layer = 0;
  layer_state state{};    ///< of a base
  version at{};           ///< that a step leads to, or of the end
  std::uint64_t step = 0; ///< that is to be applied
};

/// What the ranks of a generation do together.
struct joint_work {
  std::uint64_t step = 0;
  bool evaluates = false; ///< the version before that step

  friend auto operator<=>(const joint_work&, const joint_work&) = default;
};

enum class pass_outcome { computed, drained, gone };

/// An executor, as the data plane sees it.
class data_end {
public:
  data_end(process_ptr p, slot_id s) : process(std::move(p)), slot(std::move(s)) {}
  virtual ~data_end() = default;

  const process_ptr process;
  const slot_id slot;

  virtual void on_connected(generation g) = 0;
  virtual void on_unreachable(generation g, std::uint32_t peer) = 0;
  virtual void on_closed(generation g, std::uint32_t peer) = 0; ///< by that participant, or what lies between
  /// What its passes need of it, or, `late`, the rest.
  virtual void on_shard(generation g, std::uint32_t layer, const layer_state& x, bool late) = 0;
  virtual void on_fed(generation, std::uint32_t, const fed&) {} ///< by that participant
  virtual void on_computed(generation, const joint_work&) {}
  /// Of a step, another rank's contribution; of an evaluation, sums of a rank of the last stage.
  virtual void on_told(generation, const joint_work&, const wishes&) {}
  virtual bool takes(const parcel&) { return false; }
  // Of a job that serves.
  virtual bool serves_now(generation) const { return false; }
  virtual pass_outcome on_pass(generation, pass_frame&) { return pass_outcome::gone; }
  virtual void on_caches(generation, std::uint32_t /*move*/, const stage_caches::content&) {}
};

struct data_plane_options {
  nanoseconds step = 200ms;
  nanoseconds message = 3ms; ///< takes at most
  /// By layer: a shard of it keeps a link busy for so long.
  std::vector<nanoseconds> shards{};
};

class data_plane {
public:
  data_plane(engine& e, witness& w, const data_plane_options& options) : engine_(e), witness_(w), options_(options) {}

  void add(data_end& x) { ends_[x.slot] = &x; }
  /// All its connections end. False: another has its slot by now.
  bool remove(data_end& x);

  /// Waits for all participants of the plan; answered by on_connected or on_unreachable.
  void connect(const prepare& plan, data_end& x);
  /// That participant's connections end.
  void close(generation g, const data_end& x);
  /// What passes need of a shard, or, `late`, the rest. After what this one moves already; says how long it takes until
  /// that is sent.
  nanoseconds move(generation g, const shard_move& what, const layer_state& x, bool late);
  /// Comes in its order.
  void feed(generation g, std::uint32_t from, std::uint32_t to, const fed& x);
  /// Answered by on_computed, once all ranks have begun.
  void begin(generation g, std::uint32_t rank, const joint_work& what);
  /// All other ranks, which hear it by on_told.
  void tell(generation g, std::uint32_t rank, const joint_work& what, const wishes& x);

  /// Comes to that participant, as the move of the plan with that number.
  void send_caches(generation g, std::uint32_t to, std::uint32_t move, stage_caches::content all);
  /// Null: it is gone, or cut off.
  data_end* reached(const slot_id& slot) const;
  /// A pass comes to that slot: `arrives` is told its end, or null.
  void bring_pass(const slot_id& to, std::function<void(data_end*)> arrives);

  /// Until the keeper takes it, or `wanted` is gone.
  void bring(const process_ptr& from, const slot_id& keeper, std::shared_ptr<parcel> what, std::weak_ptr<void> wanted);

  /// The hosts of this process and of all others do not reach each other.
  void cut(const process_ptr& p);
  void heal(const process_ptr& p);
  /// Each shard that it sends from now on takes so much longer.
  void slow_down(const process_ptr& p, nanoseconds longer) { slow_[p->name] = longer; }

  /// Generations of which a rank has connections.
  std::size_t trained() const;

private:
  struct session {
    placement grid;
    std::vector<data_end*> ends; ///< by participant; null: not there yet, or no more
    std::set<std::uint32_t> closed;
    bool complete = false;                               ///< all were there
    bool trains = false;                                 ///< a rank has begun a step
    std::map<joint_work, std::set<std::uint32_t>> begun; ///< by which ranks
    std::map<std::uint32_t, time_point> sent;            ///< by participant: when its link is free
    struct line {
      std::deque<simulation::fed> under_way;
      time_point free;
    };
    std::map<std::pair<std::uint32_t, std::uint32_t>, line> fed; ///< by source and destination
  };

  session* find(generation g);
  void bring_fed(generation g, std::uint32_t from, std::uint32_t to);
  data_end* end_of(generation g, std::uint32_t participant);
  /// It is cut off from some of the others: they are on other hosts.
  bool is_apart(const session& s, const data_end& x) const;
  /// That participant hears that its connection to another has ended.
  void tell_closed(generation g, std::uint32_t whom, std::uint32_t peer);
  nanoseconds time_of(const process_ptr& from, std::uint32_t layer) const;
  nanoseconds delay() { return engine_.chance().between(50us, options_.message); }
  /// From one participant to another, in their order.
  void pass(generation g, std::uint32_t to, std::function<void(data_end&)> what);

  engine& engine_;
  witness& witness_;
  const data_plane_options options_;
  std::map<slot_id, data_end*> ends_;
  std::map<generation, session> sessions_;
  std::set<std::string> cut_;
  std::map<std::string, nanoseconds> slow_;
};

} // namespace parcae::simulation
