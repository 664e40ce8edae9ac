#pragma once

// What a keeper promises, in virtual time: the real shard_store behind a double of everything else of gpu/keeper.

#include "gpu/executor/executor.hpp"
#include "gpu/keeper/shard_store.hpp"
#include "tests/simulation/data_plane.hpp"
#include "tests/simulation/worker_double.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

namespace parcae::simulation {

/// A keeper's folder: outlives its process.
struct disk {
  struct file {
    shard_store::shard_ptr shard;
    commit_result made_by;
  };
  std::map<std::string, std::vector<file>> folders; ///< by name
  bool full = false;
};

class keeper_double final : public executor, data_end {
public:
  keeper_double(const executor_surroundings& around, process_ptr p, const slot_id& slot, std::shared_ptr<disk> folder,
                std::function<void(report)> report_to);
  ~keeper_double() override;

  void submit(command x) override;
  void want_snapshot() override {}

private:
  struct sending {
    prepare plan;
    bool connected = false;
    bool is_delivered = false;
    std::optional<failed> failure;
  };

  void on_connected(generation g) override;
  void on_unreachable(generation g, std::uint32_t peer) override;
  void on_closed(generation, std::uint32_t) override {}
  void on_shard(generation, std::uint32_t, const layer_state&) override {}
  bool takes(const parcel& x) override;

  void do_next();
  template <class T>
  void handle(const T&) {} // for workers
  void handle(const guard& x);
  void handle(const confirm& x);
  void handle(const replicate& x);
  void handle(const checkpoint& x);
  void handle(const restore& x);
  void handle(const forget& x);
  void handle(const prepare& x);
  void handle(const transfer& x);
  void handle(const abort_generation& x);
  void handle(const release& x);

  void later(nanoseconds delay, std::function<void()> what);
  void add(shard_store::shard_ptr x, const commit_result& result);
  void report_kept();
  void end_sending();
  bool sends(generation g) const { return sending_ && sending_->plan.next == g; }
  void say(report x);

  executor_surroundings around_;
  std::shared_ptr<disk> disk_;
  std::function<void(report)> report_to_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::deque<command> queue_;
  job_id job_; ///< 0: none yet
  std::optional<secret_key> key_;
  generation announced_; ///< snapshots of newer ones are refused
  shard_store shards_;
  std::map<version, std::shared_ptr<int>> copies_; ///< on their way to other keepers, as long as they live
  generation newest_;                              ///< of all PREPAREs seen
  std::optional<version> reading_;
  std::unique_ptr<sending> sending_;
};

} // namespace parcae::simulation
