#pragma once

// Where a keeper's checkpoints are (its own folder, or where the job says), and the one thread that waits for that.

#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/checkpoint/losses.hpp"
#include "protocols/base/mailbox.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/store/store.hpp"

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace parcae {

/// Requests are done in order. Of writes that wait (the disk hangs, the network is slow) only the newest is kept: it
/// takes the place of the one before, as shards take the memory of the job's state. Callbacks come on its thread.
/// Destruction drops the requests that wait, and ends the one under way between two layers, or in the midst of a
/// request to a server; nothing is called back afterwards.
///
/// In its own folder a keeper touches its own shares only: others may have been put beside them. In the place that the
/// job names all keepers write, and each deletes whole checkpoints: those that are older than what it just wrote, not
/// to be kept, and not the newest complete one there. So the last good one stays, also if the newer one fails.
class checkpoint_store {
public:
  /// `folder` is created when something is written. `keeper` names the files. Jobs may name other places below one of
  /// `places` (--data), or any if there are none. `pace`: of those.
  checkpoint_store(std::filesystem::path folder, std::string keeper, std::vector<std::filesystem::path> places = {},
                   const store_pace& pace = {});
  ~checkpoint_store();

  /// Writes `losses` beside the run's checkpoints, then `shards`, which are kept alive until then, deletes what is not
  /// to be kept, and answers. If a newer one comes before that begins, answers that this one is given up, at once and
  /// on the thread of `write`; not if the newer one is of the same version, whose answer is that of both.
  void write(checkpoint x, std::vector<std::shared_ptr<const shard_bytes>> shards, commit_result result,
             std::function<void(checkpointed)> done, loss_record losses = {});

  /// Calls `on_shard` for what there is of losses before that step, and for each layer that could be read, then
  /// answers.
  void read(restore x, std::function<void(const commit_result&, shard_bytes)> on_shard,
            std::function<void(restored)> done);

private:
  struct request {
    std::function<void()> work;
    std::function<void(const checkpoint& newer)> give_up; ///< of writes only
  };

  /// Where a job's checkpoints are.
  struct home {
    store_ptr store;
    bool is_own = true; ///< this keeper's folder
  };

  void run();
  home home_of(const job_specification& job);
  /// Throws std::runtime_error, also if jobs may not name that place.
  store_ptr open(const std::string& place, const job_specification& job);
  /// Why jobs may not name it; empty: they may.
  std::string refusal_of(const std::string& place) const;
  checkpointed write_now(const checkpoint& x, std::vector<std::shared_ptr<const shard_bytes>> shards,
                         const commit_result& result, const loss_record& losses);
  void write_losses(object_store& run, const loss_record& x, std::uint32_t samples);
  /// Of the run that a checkpoint is in; what cannot be read is left out, and said in the log.
  void read_losses(const restore& x, const std::vector<store_ptr>& checkpoint,
                   const std::function<void(const commit_result&, shard_bytes)>& on_shard);
  void write_to(const home& at, const checkpoint& x, std::vector<std::shared_ptr<const shard_bytes>> shards,
                const commit_result& result);
  void tidy_up(object_store& run) const;
  void delete_others(const object_store& run, bool is_own, const checkpoint& x) const;
  void delete_share(object_store& of) const;
  std::string place_of(const checkpoint& x) const; ///< for people
  /// What was asked for, as far as it is anywhere, and this keeper's own share of it: others may have written
  /// elsewhere.
  std::vector<store_ptr> find(const restore& x);
  restored read_now(const restore& x, const std::function<void(const commit_result&, shard_bytes)>& on_shard);

  const store_ptr own_;
  const std::string keeper_;
  const std::vector<std::filesystem::path> places_;
  const store_pace pace_;
  std::atomic<bool> ending_ = false;
  std::stop_source stop_;                     ///< with ending_
  std::set<std::string> tidy_;                ///< runs in which nothing of an earlier life of this keeper is unfinished
  std::map<std::string, loss_record> losses_; ///< by run: what this life of the keeper has written there
  std::map<std::array<std::string, 3>, store_ptr> opened_; ///< by place, endpoint and region; with their connections
  mailbox<request> queue_;
  std::thread thread_; ///< last: uses all of the above
};

} // namespace parcae
