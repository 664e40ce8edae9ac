#pragma once

// Executors without network or time: they carry the product's rules, and whatever those ask for is done at once.
// Steps are made when somebody says so.

#include "gpu/executor/worker_machine.hpp"
#include "gpu/keeper/keeper_machine.hpp"
#include "protocols/choreography/snapshots.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// A layer on its way to a keeper.
struct shard_on_its_way {
  slot_id from, to;
  layer_version what;
  commit_result made_by;
  std::shared_ptr<bool> wanted; ///< false: the stream has ended. Held by the sender and by all that is on its way
};

class carried_executors {
public:
  static constexpr job_id job{1};

  std::function<void(const slot_id&, report)> report_to;
  std::function<void(const std::string&)> object; ///< to what the rules should not have asked for
  std::function<void(const slot_id&, const keeper_effects::write&)> write;
  std::function<void(const slot_id&, const restore&)> read; ///< what is read is to arrive, and then was_read()
  std::function<void(shard_on_its_way)> snapshot_to;        ///< may be empty: it gets lost
  /// Of the layers from the first to before the last; may be empty.
  std::function<void(progress&, std::uint32_t first, std::uint32_t last)> on_progress;

  void add(const slot_id& x, bool keeper);
  /// Nothing is told to it any more, and it takes part in no step; `noticed`: peers see that its connections end.
  void lose(const slot_id& x, bool noticed);
  /// The same life.
  void come_back(const slot_id& x);
  void tell(const slot_id& to, const command& what);
  /// Who was told to stop does so: the exchange of the last step made counts as the one in progress. Who is at the last
  /// version ends. To be called when all that belongs together was told.
  void settle();

  /// All generations of which no rank is missing make a step.
  void step(double loss);
  /// All ranks say that they are there, of a job that serves.
  void serve();
  /// All their ranks have the gradients of a step; some have applied it when their communication ends. False: there is
  /// none.
  bool half_step(const std::function<bool()>& applies);

  void arrive(const slot_id& keeper, const layer_version& x, const commit_result& made_by);
  void caught_up(const slot_id& keeper);
  void was_read(const slot_id& keeper, const restored& x);
  /// All that it held goes, and this is there; it does not say so.
  void hold(const slot_id& keeper, const inventory& x);

  inventory held(const slot_id& x) const;

  std::optional<version> followed; ///< by who is told to keep what went ahead; none: it has nothing

private:
  struct worker {
    explicit worker(const slot_id& x) : self(x), machine(x) {}

    const slot_id self;
    worker_machine machine;
    bool away = false;
    std::map<job_generation, std::shared_ptr<const prepare>> parts;
    std::shared_ptr<const prepare> trained; ///< null: nothing
    training_state state;
    wishes asks; ///< with the next exchange
    protect feed;
    std::shared_ptr<bool> stream; ///< to the keepers

    bool trains() const { return !away && machine.trains(); }
    std::uint32_t place_in(const placement& x) const;
    /// Of what it trains: the first layer of its stage, and the one after its last.
    std::pair<std::uint32_t, std::uint32_t> stage() const;
  };
  struct keeper {
    explicit keeper(const slot_id& x) : self(x), machine(std::make_unique<keeper_machine>(x, true)) {}

    const slot_id self;
    std::unique_ptr<keeper_machine> machine;
    guard guarded; ///< as it was told
    std::vector<std::pair<replicate, std::shared_ptr<bool>>> copies;
  };

  void does(worker& w, const worker_machine::effects& all);
  void does(keeper& k, const keeper_machine::effects& all);
  void do_one(worker& w, const worker_effects::say& x) { report_to(w.self, widened<report>(x.what)); }
  void do_one(worker& w, const worker_effects::connect& x);
  void do_one(worker& w, const worker_effects::cut& x);
  void do_one(worker& w, const worker_effects::drop& x);
  void do_one(worker& w, const worker_effects::warm& x) { does(w, w.machine.warmed(x.of, 0, 0)); }
  void do_one(worker& w, const worker_effects::keep_followed& x);
  void do_one(worker& w, const worker_effects::move& x);
  void do_one(worker& w, const worker_effects::begin& x);
  void do_one(worker& w, const worker_effects::ask_to_stop& x);
  void do_one(worker& w, const worker_effects::ask_for_snapshot&) { w.asks.due = true; }
  void do_one(worker& w, const worker_effects::settle&) { does(w, w.machine.settled(w.machine.held())); }
  void do_one(worker& w, const worker_effects::apply& x);
  void do_one(worker& w, const worker_effects::drop_gradients&) { w.state.complete = no_step; }
  void do_one(worker& w, const worker_effects::send_snapshot& x);
  void do_one(worker& w, const worker_effects::report_progress& x);
  void do_one(worker&, const worker_effects::trace&) {}
  void do_one(worker& w, const worker_effects::use_keepers& x);
  void do_one(worker&, const auto&) {} // the inventory is the machine's, and there is no device
  void do_one(keeper& k, const keeper_effects::say& x) { report_to(k.self, widened<report>(x.what)); }
  void do_one(keeper& k, const keeper_effects::connect& x) { does(k, k.machine->connected(x.plan.next)); }
  void do_one(keeper& k, const keeper_effects::send& x) { does(k, k.machine->sent(x.of)); }
  void do_one(keeper& k, const keeper_effects::copy& x);
  void do_one(keeper& k, const keeper_effects::end_copy& x);
  void do_one(keeper& k, const keeper_effects::write& x) { write(k.self, x); }
  void do_one(keeper& k, const keeper_effects::read& x) { read(k.self, x.what); }
  void do_one(keeper&, const auto&) {}

  /// Ranks of generations of which none is missing and a step is left; all of one generation ask for the same now.
  std::vector<worker*> exchange();
  void apply(worker& w, const commit_result& result);
  void commit(worker& w, double loss);
  /// Their communication ends, but for `who`'s.
  void break_off(const job_generation& of, const worker& who);
  void fail(worker& w);

  std::map<slot_id, worker> workers_;
  std::map<slot_id, keeper> keepers_;
  std::map<std::uint64_t, std::weak_ptr<const prepare>> plans_; ///< by checksum: there may be a thousand ranks
  bool unsettled_ = false;
  bool quiet_ = false; ///< PROGRESS is not due
};

} // namespace parcae
