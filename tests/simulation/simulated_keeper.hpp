#pragma once

// A keeper's executor in virtual time: carries the product's keeper_machine. Its shards are a layer's bits.

#include "gpu/executor/executor.hpp"
#include "gpu/keeper/keeper_machine.hpp"
#include "tests/simulation/data_plane.hpp"
#include "tests/simulation/simulated_worker.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace parcae::simulation {

/// A keeper's folder: outlives its process.
struct disk {
  struct share {
    std::vector<shard_store::shard_ptr> shards;
    commit_result made_by;
    loss_record losses;
  };
  std::map<std::string, share> folders; ///< by name
  bool full = false;
};

class simulated_keeper final : public executor_of<keeper_command>, data_end {
public:
  simulated_keeper(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                   std::shared_ptr<disk> folder, std::function<void(report)> report_to);
  ~simulated_keeper() override;

  void want_snapshot() override {}

private:
  void obey(keeper_command x) override;

  /// On its way to another keeper, as long as there is a `sent`.
  struct copying {
    replicate what;
    std::weak_ptr<const parcel> sent;
    std::shared_ptr<int> wanted;
  };

  // Of the data plane.
  void on_connected(generation g) override;
  void on_unreachable(generation g, std::uint32_t peer) override;
  void on_closed(generation g, std::uint32_t peer) override;
  void on_shard(generation, std::uint32_t, const layer_state&, bool) override {}
  bool takes(const parcel& x) override;

  void later(nanoseconds delay, std::function<void()> what);
  void do_next();
  void receive(job_id job, std::uint32_t layer, const layer_state& x, const commit_result& made_by);

  void do_all(const keeper_machine::effects& all);
  void do_one(const keeper_effects::say& x);
  void do_one(const keeper_effects::take_snapshots& x) { accepts_ = x; }
  void do_one(const keeper_effects::connect& x);
  void do_one(const keeper_effects::cut& x) { around_.plane.close(x.of, *this); }
  void do_one(const keeper_effects::send& x);
  void do_one(const keeper_effects::copy& x);
  void do_one(const keeper_effects::end_copy& x);
  void do_one(const keeper_effects::write& x);
  void do_one(const keeper_effects::read& x);
  void do_one(const keeper_effects::forget_job&);

  executor_surroundings around_;
  std::shared_ptr<disk> disk_;
  std::function<void(report)> report_to_;
  keeper_machine machine_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::deque<keeper_command> queue_;
  std::optional<keeper_effects::take_snapshots> accepts_;
  std::vector<copying> copies_;
  std::set<std::pair<generation, std::uint32_t>> closed_; ///< participants whose connections ended
};

} // namespace parcae::simulation
