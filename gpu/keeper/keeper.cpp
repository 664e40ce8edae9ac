#include "gpu/keeper/keeper.hpp"

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/frames.hpp"
#include "gpu/keeper/checkpoint_store.hpp"
#include "gpu/keeper/shard_store.hpp"
#include "gpu/keeper/snapshot_admission.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/mailbox.hpp"
#include "protocols/model/early_stop.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>

namespace parcae {

namespace {

using namespace std::chrono_literals;

constexpr auto send_limit = 600s; ///< one shard; progress is watched by the conductor

/// A keeper's part in one generation: connects, and sends what TRANSFER asks for. A thread of its own, so that the
/// keeper goes on taking snapshots. Made and destroyed by the keeper's thread.
class sending_session {
public:
  /// `on_failure` and `on_kill` may be called on any thread.
  sending_session(const executor_options& options, data_port& port, prepare plan,
                  std::function<void(failed)> on_failure, std::function<void()> on_kill) :
      options_(options),
      port_(port), plan_(std::move(plan)), on_failure_(std::move(on_failure)), on_kill_(std::move(on_kill)),
      thread_([this] { run(); }) {}

  /// Ends all communication; nothing is reported afterwards.
  ~sending_session() {
    {
      const lock held(mutex_);
      cancelled_ = true;
      if (comm_)
        comm_->abort();
      changed_.notify_all();
    }
    thread_.join();
  }

  const prepare& plan() const { return plan_; }

  void prepare_again() {
    const lock held(mutex_);
    if (failure_)
      on_failure_(*failure_);
    else if (comm_)
      options_.report_to(prepared_report());
  }

  /// `shards` belong to the moves of the plan that start here, in order.
  void transfer_at(version at, std::vector<std::pair<shard_move, shard_store::shard_ptr>> shards) {
    const lock held(mutex_);
    if (delivered_)
      options_.report_to(delivered{plan_.next});
    else if (failure_)
      on_failure_(*failure_);
    if (work_)
      return;
    work_ = work{at, std::move(shards)};
    changed_.notify_all();
  }

private:
  struct work {
    version at;
    std::vector<std::pair<shard_move, shard_store::shard_ptr>> shards;
  };

  prepared prepared_report() const { return {plan_.next, checksum_of(plan_)}; }

  void run() {
    use_crash_stack();
    try {
      auto made = port_.connect(plan_, options_.self, connect_limit, cancelled_);
      lock held(mutex_);
      comm_ = std::move(made);
      if (cancelled_)
        return;
      options_.report_to(prepared_report());
      while (!cancelled_ && !work_)
        held.wait(changed_);
      if (cancelled_)
        return;
      const auto at = work_->at;
      auto& comm = *comm_;
      auto shards = std::exchange(work_->shards, {}); // not kept longer than they are sent: a session may outlive them
      held.give_back();
      send(comm, at, shards);
      shards.clear();
      held.take_again();
      delivered_ = true;
      if (!cancelled_)
        options_.report_to(delivered{plan_.next});
    } catch (const killed&) {
      on_kill_();
    } catch (const unreachable_peer& e) {
      fail(failure::unreachable, e.peer, e.what());
    } catch (const communication_error& e) {
      fail(failure::communication, 0, e.what());
    } catch (const std::exception& e) {
      fail(failure::computation, 0, e.what());
    }
  }

  void send(communicator& comm, const version& at,
            const std::vector<std::pair<shard_move, shard_store::shard_ptr>>& shards) {
    std::uint32_t sent = 0;
    auto fault_point_here = [&] {
      if (options_.on_fault_point)
        options_.on_fault_point({"transfer_send", plan_.next, at.steps, sent});
    };
    fault_point_here();
    // One after the other: the network takes them as fast as it can anyway, and a shard is many packets.
    for (const auto& [move, shard] : shards) {
      std::vector<ticket> parts;
      for (std::uint32_t i = 0; i < shard->parts.size(); ++i)
        parts.push_back(comm.send(move.destination, shard_tag(at, move.layer, i), shard->parts[i]));
      for (const auto& x : parts)
        comm.wait(x, send_limit);
      ++sent;
      fault_point_here();
    }
  }

  void fail(failure kind, std::uint32_t peer, const std::string& what) {
    const lock held(mutex_);
    if (cancelled_)
      return;
    failure_ = failed{plan_.next, kind, peer, what, {}};
    on_failure_(*failure_);
  }

  const executor_options& options_;
  data_port& port_;
  const prepare plan_;
  const std::function<void(failed)> on_failure_;
  const std::function<void()> on_kill_;
  std::atomic<bool> cancelled_ = false; ///< set under the mutex, read by connect()
  mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<communicator> comm_ GUARDED_BY(mutex_); ///< set once, by the session's thread
  std::optional<work> work_ GUARDED_BY(mutex_);
  bool delivered_ GUARDED_BY(mutex_) = false;
  std::optional<failed> failure_ GUARDED_BY(mutex_); ///< why the session ended
  std::thread thread_;                               ///< last: uses all of the above
};

class keeper : public executor {
public:
  keeper(executor_options options, data_port& port) :
      options_(std::move(options)), port_(port),
      disk_(options_.checkpoints.empty()
                ? nullptr
                : std::make_unique<checkpoint_store>(options_.checkpoints, options_.self.instance)),
      thread_([this] { run(); }) {}

  ~keeper() override {
    queue_.close();
    thread_.join();
    disk_.reset();
    end_jobs(); // before what the sessions' threads use
  }

  void submit(command x) override { queue_.put(std::move(x)); }
  void want_snapshot() override {}

private:
  /// A shard from a snapshot stream.
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

  struct guarded_job {
    secret_key key;
    std::uint64_t acceptance = 0;                  ///< of snapshots; 0: none
    std::shared_ptr<snapshot_admission> admission; ///< of its streams
    std::optional<std::uint32_t> with_course;      ///< the layer that has a validation_course
    shard_store shards;
    generation newest;                        ///< of all PREPAREs seen
    std::optional<version> reading;           ///< what is being read of a checkpoint
    std::unique_ptr<sending_session> session; ///< of `newest`, until it is aborted or over
    std::vector<copying> copies;              ///< under way
  };

  using event = std::variant<command, arrival, restored, failed, killed>;

  void run() {
    use_crash_stack();
    try {
      serve();
    } catch (const killed&) {
      end_jobs();
    }
  }

  /// Ends all connections.
  void end_jobs() {
    for (auto& [id, job] : jobs_)
      port_.end_snapshots(job.acceptance);
    jobs_.clear();
  }

  void serve() {
    while (auto x = queue_.take()) {
      guarded([&] { std::visit([this](auto& y) { handle(y); }, *x); });
      // One report for all that arrived in the meantime.
      if (!queue_.next_is([](const event& y) { return std::holds_alternative<arrival>(y); }))
        for (auto id : std::exchange(unreported_, {}))
          if (auto job = jobs_.find(id); job != jobs_.end())
            report_kept(id, job->second, {});
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

  void handle(arrival& x) {
    auto job = jobs_.find(x.job);
    if (job == jobs_.end())
      return;
    auto& at = x.shard->at;
    if (options_.on_fault_point)
      options_.on_fault_point({"snapshot", at.by, at.steps, job->second.shards.layers_at(at)});
    if (job->second.shards.add(x.shard, x.result))
      unreported_.insert(x.job);
  }

  void handle(killed& x) { throw x; }

  void handle(failed& x) {
    if (auto job = job_in(x.current)) {
      x.held = job->shards.held();
      options_.report_to(std::move(x));
    }
  }

  void handle(command& x) {
    std::visit([this](auto& y) { handle(y); }, x);
  }

  void report_kept(job_id id, const guarded_job& job, std::vector<layer_digest> digests) {
    options_.report_to(kept{id, job.shards.held(), job.shards.results(), std::move(digests)});
  }

  /// The job whose generation g this keeper takes part in. Only commands of the job attached arrive
  /// (actors/node/gpu.cpp), so there is one.
  guarded_job* job_in(generation g) {
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
      return entry.second.session && entry.second.session->plan().next == g;
    });
    return found == jobs_.end() ? nullptr : &found->second;
  }

  void handle(guard& x) {
    auto& job = jobs_[x.job];
    if (job.acceptance != 0 && job.key == x.key)
      return job.admission->announce(x.newest);
    job.key = x.key;
    job.with_course = layer_with_course(x.specification);
    job.admission = std::make_shared<snapshot_admission>(x.specification, x.newest);
    job.acceptance = port_.accept_snapshots(
        x.job, x.key,
        [admission = job.admission](std::uint32_t layer, const version& at, const std::vector<std::uint64_t>& sizes) {
          return admission->problem_of(layer, at, sizes);
        },
        [this, id = x.job](const commit_result& result, shard_bytes shard) {
          queue_.put(arrival{id, result, std::make_shared<const shard_bytes>(std::move(shard))});
        });
  }

  void handle(confirm& x) {
    auto& job = jobs_[x.job];
    job.shards.confirm(x.newest, x.safe, x.chain);
    if (job.admission)
      for (const auto& link : x.chain)
        job.admission->announce(link.by);
    std::erase_if(job.copies,
                  [&](const auto& y) { return y.what.at.steps < x.safe.steps || is_void(y.what.at, x.chain); });
    report_kept(x.job, job, x.digests ? job.shards.digests(x.newest, job.with_course) : std::vector<layer_digest>());
  }

  void handle(replicate& x) {
    const auto found = jobs_.find(x.job);
    if (found == jobs_.end())
      return;
    auto& job = found->second;
    std::erase_if(job.copies, [](const auto& y) { return y.stream->wait_until_idle(0ms); });
    if (std::ranges::any_of(job.copies, [&](const auto& y) { return y.what == x; }))
      return; // asked again
    auto copy = std::make_shared<snapshot>();
    copy->job = x.job;
    copy->result = job.shards.result_of(x.at);
    for (const auto layer : x.layers)
      if (auto shard = job.shards.find(layer, x.at))
        copy->shards.push_back(std::move(shard));
    auto stream = port_.open_snapshot_stream(x.job, x.to, pass_of(job.key, options_.self));
    stream->send(std::move(copy));
    job.copies.push_back({std::move(x), std::move(stream)});
  }

  void handle(checkpoint& x) {
    const auto job = jobs_.find(x.job);
    if (!disk_ || job == jobs_.end())
      return options_.report_to(checkpointed{
          x.job, x.at, {}, {}, disk_ ? "nothing of that job is held" : "this keeper has no folder for checkpoints"});
    std::vector<shard_store::shard_ptr> shards;
    for (const auto& held : job->second.shards.held())
      if (held.at == x.at)
        shards.push_back(job->second.shards.find(held.layer, held.at));
    const auto made_by = job->second.shards.result_of(x.at);
    disk_->write(std::move(x), std::move(shards), made_by, options_.report_to);
  }

  /// What is read arrives like a snapshot, and is reported like one.
  void handle(restore& x) {
    if (!disk_)
      return options_.report_to(restored{x.job, x.at, false, "this keeper has no folder for checkpoints"});
    auto& job = jobs_[x.job];
    if (std::exchange(job.reading, x.at) == x.at)
      return; // asked again while it reads
    job.shards.go_back(x.at);
    disk_->read(
        x,
        [this, id = x.job](const commit_result& result, shard_bytes shard) {
          queue_.put(arrival{id, result, std::make_shared<const shard_bytes>(std::move(shard))});
        },
        [this](restored y) { queue_.put(std::move(y)); });
  }

  /// After the shards, which came through the same queue.
  void handle(restored& x) {
    if (auto job = jobs_.find(x.job); job != jobs_.end()) {
      unreported_.erase(x.job);
      job->second.reading.reset();
      report_kept(x.job, job->second, {});
    }
    options_.report_to(std::move(x));
  }

  void handle(forget& x) {
    if (const auto job = jobs_.find(x.job); job != jobs_.end()) {
      port_.end_snapshots(job->second.acceptance);
      jobs_.erase(job);
    }
  }

  void handle(prepare& x) {
    auto& job = jobs_[x.job];
    if (x.next == job.newest && job.session)
      return job.session->prepare_again();
    if (x.next <= job.newest)
      return;
    job.newest = x.next;
    job.session.reset(); // ends what was under way for the older one, and before its place is taken
    job.session = std::make_unique<sending_session>(
        options_, port_, std::move(x), [this](failed y) { queue_.put(std::move(y)); },
        [this] { queue_.put(killed{}); });
  }

  void handle(transfer& x) {
    auto job = job_in(x.next);
    if (!job)
      return;
    std::vector<std::pair<shard_move, shard_store::shard_ptr>> shards;
    const auto& plan = job->session->plan();
    for (const auto& move : plan.moves) {
      if (plan.target.participants[move.source].slot != options_.self)
        continue;
      auto shard = job->shards.find(move.layer, x.at);
      if (!shard) {
        options_.report_to(failed{x.next, failure::refused, 0,
                                  "layer " + std::to_string(move.layer) + " is not held at " + to_string(x.at),
                                  job->shards.held()});
        return;
      }
      shards.push_back({move, std::move(shard)});
    }
    job->session->transfer_at(x.at, std::move(shards));
  }

  void handle(abort_generation& x) {
    auto job = job_in(x.current);
    if (job)
      job->session.reset();
    else if (!jobs_.empty()) // asked only for what is held
      job = &jobs_.rbegin()->second;
    options_.report_to(aborted{x.current, {}, no_step, {}, job ? job->shards.held() : inventory()});
  }

  /// The generation trains: nothing is to be sent any more.
  void handle(release& x) {
    if (auto job = job_in(x.current))
      job->session.reset();
  }

  // These are for workers.
  void handle(load&) {}
  void handle(stop&) {}
  void handle(activate&) {}
  void handle(decide&) {}
  void handle(protect&) {}

  const executor_options options_;
  data_port& port_;
  std::map<job_id, guarded_job> jobs_; ///< of the keeper's thread, as the next
  std::set<job_id> unreported_;        ///< whose shards became more since the last report
  mailbox<event> queue_;
  std::unique_ptr<checkpoint_store> disk_; ///< null: no folder
  std::thread thread_;                     ///< last: uses all of the above
};

} // namespace

std::unique_ptr<executor> make_keeper(executor_options options, data_port& port) {
  return std::make_unique<keeper>(std::move(options), port);
}

} // namespace parcae
