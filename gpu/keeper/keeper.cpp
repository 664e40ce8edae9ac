#include "gpu/keeper/keeper.hpp"

#include "gpu/dataplane/data_port.hpp"
#include "gpu/executor/memory_settings.hpp"
#include "gpu/keeper/checkpoint_store.hpp"
#include "gpu/keeper/keeper_machine.hpp"
#include "gpu/keeper/sending_session.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/mailbox.hpp"

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

namespace parcae {

namespace {

using namespace std::chrono_literals;

/// Carries a keeper_machine: what the rules say, connections, streams and the disk do.
class keeper : public executor_of<keeper_command> {
public:
  keeper(executor_options options, data_port& port) :
      options_(std::move(options)), port_(port),
      disk_(options_.checkpoints.empty()
                ? nullptr
                : std::make_unique<checkpoint_store>(options_.checkpoints, options_.self.instance, options_.data)),
      machine_(options_.self, disk_ != nullptr), thread_([this] { run(); }) {}

  ~keeper() override {
    queue_.close();
    thread_.join();
    disk_.reset();
    end_all(); // before what the session's thread uses
  }

  void want_snapshot() override {}

private:
  void obey(keeper_command x) override { queue_.put(std::move(x)); }

  /// A shard from a snapshot stream, or a checkpoint.
  struct arrival {
    job_id job;
    commit_result result;
    shard_store::shard_ptr shard;
  };

  /// On its way to another keeper.
  struct copying {
    replicate what;
    std::unique_ptr<snapshot_stream> stream;
  };

  using event = std::variant<keeper_command, arrival, restored, session_news>;

  void run() {
    use_crash_stack();
    try {
      while (auto x = queue_.take()) {
        guarded([&] { std::visit([this](auto& y) { handle(y); }, *x); });
        // One report for all that arrived in the meantime.
        if (!queue_.next_is([](const event& y) { return std::holds_alternative<arrival>(y); }))
          guarded([&] { do_all(machine_.caught_up()); });
      }
    } catch (const killed&) {
      end_all();
    }
  }

  /// What fails is reported; the keeper goes on.
  template <class Function>
  void guarded(Function&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      options_.report_to(failed{{}, failure::computation, 0, e.what(), {}});
    }
  }

  /// Ends all connections.
  void end_all() {
    session_.reset();
    stop_streams();
  }

  void stop_streams() {
    port_.end_snapshots(std::exchange(acceptance_, 0));
    copies_.clear();
  }

  void handle(keeper_command& x) {
    if (std::holds_alternative<replicate>(x)) // what has arrived there may be asked for again
      drop_copies([](const copying& y) { return y.stream->wait_until_idle(0ms); });
    do_all(machine_.take(x));
  }

  template <class Predicate>
  void drop_copies(Predicate is_over) {
    std::erase_if(copies_, [&](const copying& x) {
      const bool over = is_over(x);
      if (over)
        do_all(machine_.copied(x.what));
      return over;
    });
  }

  void handle(arrival& x) {
    const auto& at = x.shard->at;
    if (options_.on_fault_point)
      options_.on_fault_point({"snapshot", at.by, at.steps, machine_.shards().layers_at(at)});
    do_all(machine_.arrived(x.job, std::move(x.shard), x.result));
  }

  void handle(restored& x) { do_all(machine_.read(x)); }

  void handle(session_news& x) {
    std::visit([this](auto& y) { hear(y); }, x);
  }
  void hear(const session_connected& x) { do_all(machine_.connected(x.of)); }
  void hear(const session_sent& x) { do_all(machine_.sent(x.of)); }
  void hear(failed& x) { do_all(machine_.broke(std::move(x))); }
  void hear(const killed& x) { throw x; }

  void do_all(keeper_machine::effects all) {
    for (auto& x : all)
      std::visit([this](auto& y) { do_one(y); }, x);
  }

  void do_one(keeper_effects::say& x) { options_.report_to(widened<report>(std::move(x.what))); }

  void do_one(const keeper_effects::take_snapshots& x) {
    acceptance_ = port_.accept_snapshots(
        x.job, x.key,
        [admits = x.admits](std::uint32_t layer, const version& at, const std::vector<std::uint64_t>& sizes) {
          return admits->problem_of(layer, at, sizes);
        },
        to_queue(x.job));
  }

  /// For shards of a job.
  std::function<void(const commit_result&, shard_bytes)> to_queue(job_id job) {
    return [this, job](const commit_result& result, shard_bytes shard) {
      queue_.put(arrival{job, result, std::make_shared<const shard_bytes>(std::move(shard))});
    };
  }

  void do_one(keeper_effects::connect& x) {
    session_ = std::make_unique<sending_session>(options_, port_, std::move(x.plan),
                                                 [this](session_news y) { queue_.put(std::move(y)); });
  }
  void do_one(const keeper_effects::cut&) { session_.reset(); }
  void do_one(keeper_effects::send& x) { session_->send(std::move(x)); }

  void do_one(keeper_effects::copy& x) {
    auto stream = port_.open_snapshot_stream(x.what.job, x.what.to, x.permit);
    stream->send(std::move(x.sent));
    copies_.push_back({std::move(x.what), std::move(stream)});
  }
  void do_one(const keeper_effects::end_copy& x) {
    std::erase_if(copies_, [&](const copying& y) { return y.what == x.what; });
  }

  void do_one(keeper_effects::write& x) {
    disk_->write(std::move(x.what), std::move(x.shards), x.made_by, options_.report_to, std::move(x.losses));
  }
  void do_one(keeper_effects::read& x) {
    const auto job = x.what.job;
    disk_->read(std::move(x.what), to_queue(job), [this](restored y) { queue_.put(std::move(y)); });
  }

  void do_one(const keeper_effects::forget_job&) {
    stop_streams();
    give_back_memory();
  }

  const executor_options options_;
  data_port& port_;
  mailbox<event> queue_;
  std::unique_ptr<checkpoint_store> disk_; ///< null: no folder

  // Of the keeper's thread.
  keeper_machine machine_;
  std::uint64_t acceptance_ = 0;             ///< of snapshots; 0: none
  std::unique_ptr<sending_session> session_; ///< null: there is no part in a generation
  std::vector<copying> copies_;

  std::thread thread_; ///< last: uses all of the above
};

} // namespace

std::unique_ptr<executor> make_keeper(executor_options options, data_port& port) {
  return std::make_unique<keeper>(std::move(options), port);
}

} // namespace parcae
