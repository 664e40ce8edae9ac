#pragma once

// A keeper's folder of checkpoints, and the one thread that blocks on it.

#include "gpu/checkpoint/checkpoint.hpp"
#include "protocols/base/mailbox.hpp"
#include "protocols/choreography/choreography.hpp"

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace parcae {

/// Requests are done in order, but of writes that wait (the disk hangs, or is slow) only the newest is kept, in the
/// place of the one before: shards are as much memory as the job's state. Callbacks come on the store's thread.
/// Destruction drops the requests that wait, and ends the one under way between two layers; nothing is called back
/// afterwards.
class checkpoint_store {
public:
  /// `folder` is created when something is written. `keeper` names the files.
  checkpoint_store(std::filesystem::path folder, std::string keeper);
  ~checkpoint_store();

  /// Writes `shards`, which are kept alive until then, deletes what is not to be kept, and answers. If a newer one
  /// comes before that begins, answers that this one is given up, at once and on the thread of `write`; not if the
  /// newer one is of the same version, whose answer is that of both.
  void write(checkpoint x, std::vector<std::shared_ptr<const shard_bytes>> shards, commit_result result,
             std::function<void(checkpointed)> done);

  /// Calls `on_shard` for each layer that could be read, then answers.
  void read(restore x, std::function<void(const commit_result&, shard_bytes)> on_shard,
            std::function<void(restored)> done);

private:
  struct request {
    std::function<void()> work;
    std::function<void(const checkpoint& newer)> give_up; ///< of writes only
  };

  void run();
  checkpointed write_now(const checkpoint& x, std::vector<std::shared_ptr<const shard_bytes>> shards,
                         const commit_result& result) const;
  void delete_others(const checkpoint& x) const;
  void delete_share(const std::filesystem::path& of) const;
  /// What was asked for, as far as this machine has it, and this keeper's own share of it: others may have written into
  /// other folders.
  std::vector<std::filesystem::path> find(const restore& x) const;
  restored read_now(const restore& x, const std::function<void(const commit_result&, shard_bytes)>& on_shard) const;

  const std::filesystem::path folder_;
  const std::string keeper_;
  std::atomic<bool> ending_ = false;
  mailbox<request> queue_;
  std::thread thread_; ///< last: uses all of the above
};

} // namespace parcae
