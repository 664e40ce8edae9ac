#include "gpu/training/stage_executor.hpp"

#include "gpu/executor/memory_settings.hpp"
#include "gpu/executor/worker_machine.hpp"
#include "gpu/training/data_loader.hpp"
#include "gpu/training/exact_settings.hpp"
#include "gpu/training/generation_state.hpp"
#include "gpu/training/layer_room.hpp"
#include "gpu/training/progress_pace.hpp"
#include "gpu/training/slot_service.hpp"
#include "gpu/training/snapshot_feed.hpp"
#include "gpu/training/tensor_account.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/mailbox.hpp"

#include <ATen/Parallel.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

/// Carries a worker_machine: what the rules say, LibTorch, threads and sockets do.
class stage_executor final : public executor_of<worker_command> {
public:
  stage_executor(executor_options options, data_port& port) :
      options_(std::move(options)), on_(options_.on ? tensor_device(*options_.on) : processor()), port_(port),
      machine_(options_.self), feed_(on_, options_.device_bytes), loader_(options_, [this] { end_all(); }) {
    thread_ = std::thread([this] { run(); });
  }

  ~stage_executor() override {
    end_all();
    thread_.join();
  }

  void want_snapshot() override {
    const lock held(mutex_);
    if (current_ && current_->training)
      current_->training->want_snapshot();
  }

private:
  void obey(worker_command x) override {
    {
      const lock held(mutex_);
      if (ended_)
        return;
      if (auto* l = std::get_if<load>(&x)) {
        loaded_ = l->specification;
        return loader_.begin(std::move(*l));
      }
      if (auto* p = std::get_if<prepare>(&x))
        return do_at_once(machine_.hear(std::move(*p)));
      do_at_once(machine_.hear(x));
    }
    queue_.put(std::move(x));
  }

  using generation_ptr = std::shared_ptr<generation_state>;
  /// A buffer more for what may come: between two commands, so that none waits for all of it.
  struct more_room {};
  /// What the main thread is given to do; of a generation that was superseded: to join its preparation.
  using event = std::variant<worker_command, generation_ptr, more_room, feed_outcome>;

  // --- at once, beside a step in progress

  void do_at_once(worker_machine::effects all) NEEDS_LOCK(mutex_) {
    for (auto& x : all)
      if (auto* s = std::get_if<worker_effects::say>(&x))
        say(std::move(s->what));
      else if (auto* c = std::get_if<worker_effects::connect>(&x))
        begin_preparation(std::move(c->plan));
      else if (const auto* k = std::get_if<worker_effects::cut>(&x))
        end(k->of);
      else if (const auto* d = std::get_if<worker_effects::drop>(&x))
        queue_.put(take_away(d->of));
      else if (const auto* a = std::get_if<worker_effects::ask_to_stop>(&x))
        ask_to_stop(*a);
  }

  void say(worker_report x) {
    if (std::holds_alternative<prepared>(x) || std::holds_alternative<stopped>(x) ||
        std::holds_alternative<aborted>(x) || std::holds_alternative<decided>(x))
      answered_at_ = steady::now();
    options_.report_to(widened<report>(std::move(x)));
  }

  void begin_preparation(prepare x) NEEDS_LOCK(mutex_) {
    const job_generation of{x.job, x.next};
    const auto g = std::make_shared<generation_state>(std::move(x), options_.self, on_, results_, bool(current_));
    generations_.emplace(of, g);
    g->preparation = std::thread([this, of, g = g.get()] { // which g joins
      use_crash_stack();
      const tensor_account::scope counted(memory_);
      try {
        auto problem = g->run_preparation(options_, port_, store_, room_, [this] { end_all(); });
        const lock held(mutex_);
        if (!g->aborted)
          do_at_once(problem ? machine_.not_connected(of, std::move(*problem))
                             : machine_.connected(of, checksum_of(g->what)));
      } catch (const killed&) {
        end_all();
      }
    });
  }

  void end(const job_generation& of) NEEDS_LOCK(mutex_) {
    if (const auto known = generations_.find(of); known != generations_.end())
      known->second->end();
  }

  /// Destroying it may wait for its preparation, so that is done without the lock.
  generation_ptr take_away(const job_generation& of) NEEDS_LOCK(mutex_) {
    const auto known = generations_.find(of);
    return known == generations_.end() ? nullptr : std::move(generations_.extract(known).mapped());
  }

  /// Nothing if ACTIVATE is being done: then it is asked once more behind that.
  void ask_to_stop(const worker_effects::ask_to_stop& x) NEEDS_LOCK(mutex_) {
    if (current_ && x.of == job_generation{current_->what.job, current_->what.next})
      current_->ask_to_stop(x.snapshot);
  }

  /// Any thread. The main thread stops whatever it does.
  void end_all() {
    const lock held(mutex_);
    ended_ = true;
    loader_.close();
    queue_.close(); // before a step can end early, behind which another one would begin, in buffers that are in use
    for (const auto& [of, x] : generations_) // the main thread may wait for a peer
      x->end();
  }

  // --- main thread

  bool trains() {
    const lock held(mutex_);
    return machine_.trains();
  }

  /// Of what happened in its order, and does what follows.
  template <class F>
  void tell(F what) {
    do_in_order([&] {
      const lock held(mutex_);
      return what(machine_);
    }());
  }

  void run() {
    use_crash_stack();
    const tensor_account::scope counted(memory_);
    for (;;) {
      auto x = trains() ? queue_.take_at_once() : queue_.take();
      if (queue_.is_closed())
        break;
      const auto* next_command = x ? std::get_if<worker_command>(&*x) : nullptr;
      try {
        if (next_command)
          tell([&](auto& m) { return m.take(*next_command); });
        else if (!x)
          work();
        else if (const auto* f = std::get_if<feed_outcome>(&*x))
          tell([&](auto& m) { return f->tell(m); });
        else if (std::holds_alternative<more_room>(*x) && room_.more())
          queue_.put(more_room{});
      } catch (const killed&) {
        break;
      } catch (const std::exception& e) {
        on_.note_end(e);
        options_.report_to(failed{next_command ? generation_of(*next_command) : generation{}, failure::computation, 0,
                                  e.what(), inventory_of(store_)});
      }
    }
    end_all();
    queue_.drop(); // joins preparations of superseded generations, which may want the lock
    feed_.close();
    std::map<job_generation, generation_ptr> generations; // the same
    const lock held(mutex_);
    current_.reset();
    generations.swap(generations_);
  }

  void do_in_order(const worker_machine::effects& all) {
    for (const auto& x : all)
      std::visit([this](const auto& y) { do_one(y); }, x);
  }

  generation_ptr find(const job_generation& of) {
    const lock held(mutex_);
    const auto known = generations_.find(of);
    return known == generations_.end() ? nullptr : known->second;
  }

  void do_one(const worker_effects::say& x) { say(x.what); }
  void do_one(const worker_effects::connect&) {} // at once only

  void do_one(const worker_effects::cut& x) {
    const lock held(mutex_);
    end(x.of);
  }

  void do_one(const worker_effects::drop& x) {
    generation_ptr gone;
    const lock held(mutex_);
    gone = take_away(x.of);
    if (gone && current_ == gone)
      current_.reset();
  }

  void do_one(const worker_effects::leave&) {
    if (current_)
      current_->transport->leave();
  }

  void do_one(const worker_effects::warm& x) {
    const auto g = find(x.of);
    if (!g)
      return; // superseded
    const auto feeds = g->warm([this](feed_outcome y) { queue_.put(std::move(y)); }).lock();
    if (!feeds || !trains() || !current_->training)
      return;
    current_->training->feed(feeds);
    if (current_->is_whole()) // else the first commit is before that
      feeds->applied(store_, current_->training->at());
  }

  void do_one(const worker_effects::keep_followed& x) {
    if (const auto g = find(x.of))
      g->keep_followed(store_);
    tell([&](auto& m) { return m.kept_followed(x.of, inventory_of(store_)); });
  }

  void do_one(const worker_effects::move& x) {
    const auto g = find(x.of);
    if (!g)
      return;                      // superseded
    if (g->preparation.joinable()) // else it was warm
      g->preparation.join();
    service_.let_go(*g, loader_.proof_of(x.of.job));
    const auto done = g->run_transfer(store_, x.at);
    early_ = done.early;
    tell([&](auto& m) { return done.tell(m, x.of, inventory_of(store_)); });
  }

  void do_one(const worker_effects::begin& x) {
    generation_ptr before;
    {
      const lock held(mutex_);
      if (current_)
        before = take_away({current_->what.job, current_->what.next});
      current_ = generations_.at(x.of);
    }
    current_->take_over(std::move(before));
    late_ = {};
    late_wait_ms_ = 0;
    try {
      current_->fault(options_, "activate");
      start_work(x);
      current_->mover->allow_late();
      if (state().is_final) // nobody waits for it later
        become_whole();
    } catch (const std::exception&) {
      const auto end = current_->end_of(std::current_exception());
      training_state begun;
      begun.at = x.at;
      return tell([&](auto& m) { return m.step_failed(begun, end.kind.value_or(failure::communication), end.why); });
    }
    began_ms_ = std::chrono::duration<double, std::milli>(steady::now() - answered_at_.load()).count();
    tell([&](auto& m) { return m.begun(state()); });
  }

  void start_work(const worker_effects::begin& x) {
    room_.clear();
    const auto& job = current_->what.specification;
    at::set_num_threads(static_cast<int>(job.threads > 0 ? job.threads : options_.cores));
    if (job.serves())
      start_service();
    else
      current_->training->start(
          x.at, [this] { return feed_.busy(); }, [this] { return feed_.rests(); }, [this] { become_whole(); });
    if (x.snapshot && current_->training)
      current_->training->want_snapshot();
    memory_->begin();
    on_.of().begin_peak();
    pace_.begin();
  }

  void start_service() {
    current_->mover->allow_late(); // there are no moments that could be
    become_whole();
    auto made = service_.make(*current_, store_, loader_.proof_of(current_->what.job));
    const lock held(mutex_); // STOP may be heard
    current_->service = std::move(made);
  }

  /// Throws what generation_state's does.
  void become_whole() {
    if (current_->is_whole())
      return;
    const auto began = steady::now();
    current_->become_whole(store_);
    const auto waited = steady::now() - began;
    pace_.leave_out(waited);
    late_ = current_->mover->late();
    late_wait_ms_ = std::chrono::duration<double, std::milli>(waited).count();
    tell([&](auto& m) { return m.became_whole(inventory_of(store_)); });
  }

  void do_one(const worker_effects::ask_to_stop& x) {
    const lock held(mutex_);
    ask_to_stop(x);
  }
  void do_one(const worker_effects::ask_for_snapshot&) { current_->training->want_snapshot(); }
  void do_one(const worker_effects::settle&) {
    current_->end_work();
    if (!current_->is_whole())
      current_->keep_whole(store_);
    tell([&](auto& m) { return m.settled(inventory_of(store_)); });
  }

  void do_one(const worker_effects::apply& x) {
    try {
      current_->training->apply(x.result);
      committed(x.result);
      tell([&](auto& m) { return m.applied(state()); });
    } catch (const std::exception& e) {
      on_.note_end(e);
      tell([&](auto& m) { return m.not_applied(state(), e.what()); });
    }
  }

  void do_one(const worker_effects::drop_gradients&) { current_->drop_gradients(); }

  // One that is whole is one that a job can go on from: of the others some rank's part never comes.
  void do_one(const worker_effects::send_snapshot& x) {
    if (!feed_.has_keepers())
      return;
    const auto part = current_->training->parts().in(step_part::snapshot);
    const auto began_ms = thread_cpu_ms();
    const auto& job = current_->what.specification;
    const auto share = x.steps_follow && job.paces_snapshots() ? job.keeper_share_of_link : 0;
    if (const auto problem = current_->training->problem_before_snapshot(x.result.step); !problem.empty())
      return tell([&](auto& m) { return m.step_failed(state(), failure::not_finite, problem); });
    const auto losses = [this] {
      const lock held(mutex_);
      return machine_.losses();
    }();
    if (!feed_.send(*current_, store_, x.result, losses, x.whole, share))
      return;
    if (share > 0)
      feed_.rest_after(thread_cpu_ms() - began_ms);
    current_->fault(options_, "snapshot");
  }

  void do_one(const worker_effects::report_progress& x) {
    auto& training = *current_->training;
    training.parts().end_step(training.at().steps - 1);
    while (auto traced_one = training.parts().take_trace())
      options_.report_to(traced{current_->what.next, std::move(*traced_one)});
    const auto step_ms = pace_.step_done(current_->what.target.ranks(), x.surely);
    if (!step_ms)
      return;
    auto times = training.take_times();
    auto waits = training.take_waits();
    options_.report_to(progress{current_->what.next, training.at(), training.result(), *step_ms,
                                std::move(times.layers), times.other_ms, times.waited_ms, peak_bytes(), waits.ms,
                                std::move(waits.longest_for), current_->transport->state(), training.skipped(),
                                training.parts().take().value_or(step_parts{}), on_.of().peak_reserved_bytes(),
                                late_.bytes, late_.ms, late_wait_ms_});
    late_ = {};
  }

  void do_one(const worker_effects::trace& x) { current_->trace(x.steps); }
  void do_one(const worker_effects::free_shards& x) {
    for (const auto layer : x.layers)
      store_.erase(layer);
  }

  void do_one(const worker_effects::make_room& x) {
    const auto job = [this] {
      const lock held(mutex_);
      return loaded_;
    }();
    if (!job)
      return;
    room_.want(describe(job->model), x.layers, moments_of(job->optimizer) + (job->serves() ? 1 : 2));
    queue_.put(more_room{});
  }
  void do_one(const worker_effects::use_keepers& x) { feed_.begin(x.what, port_); }
  void do_one(const worker_effects::forget_job& x) {
    room_.clear();
    feed_.forget(x.job);
    service_.forget(x.job);
    loader_.forget(x.job);
  }

  training_state state() const {
    auto x = current_->state();
    x.began_ms = began_ms_;
    x.early_bytes = early_.bytes;
    x.early_ms = early_.ms;
    return x;
  }

  /// A step, or a turn of what serves.
  void work() {
    try {
      current_->service ? serve() : train();
    } catch (...) {
      const auto end = current_->end_of(std::current_exception());
      tell([&](auto& m) { return end.kind ? m.step_failed(state(), *end.kind, end.why) : m.interrupted(state()); });
    }
  }

  void serve() {
    if (!service_.turn(*current_, peak_bytes()))
      tell([&](auto& m) { return m.drained(state()); });
  }

  void train() {
    auto& training = *current_->training;
    if (training.evaluation_is_due())
      evaluate();
    if (training.is_final()) {
      become_whole();
      return tell([&](auto& m) { return m.no_step_left(state()); });
    }
    committed(training.step());
    current_->fault(options_, "committed");
    tell([&](auto& m) { return m.committed(state()); });
  }

  void evaluate() {
    const auto outside = current_->training->parts().outside();
    const auto began = steady::now();
    auto x = current_->training->evaluate();
    tell([&](auto& m) { return m.evaluated(state(), x.first_replica, std::move(x.sums), x.mean); });
    pace_.leave_out(steady::now() - began);
  }

  void committed(const commit_result& result) const {
    if (options_.on_commit)
      options_.on_commit(current_->training->at(), result);
  }

  std::uint64_t peak_bytes() const { return on_.of().facts().host ? memory_->peak() : on_.of().peak_bytes(); }

  const executor_options options_;
  const tensor_device on_;
  data_port& port_;
  const std::shared_ptr<tensor_account> memory_ = tensor_account::make();
  host_results results_{on_}; ///< the main thread's
  layer_room room_{on_};

  /// When the conductor was last answered: when the worker's part in what nobody trains in was last over.
  std::atomic<steady::time_point> answered_at_{steady::time_point()};
  mailbox<event> queue_;
  mutex mutex_;
  worker_machine machine_ GUARDED_BY(mutex_);
  std::map<job_generation, generation_ptr> generations_ GUARDED_BY(mutex_);
  generation_ptr current_; ///< one of them; set by the main thread with mutex_ held; it reads without
  std::optional<job_specification> loaded_ GUARDED_BY(mutex_); ///< of the newest LOAD
  bool ended_ GUARDED_BY(mutex_) = false;                      ///< destroyed, or by a fault

  // Main thread only.
  layer_store store_;
  snapshot_feed feed_;
  progress_pace pace_;
  slot_service service_{options_, on_};
  double began_ms_ = 0;        ///< from the last answer until training could begin
  shard_mover::arrived early_; ///< before that
  shard_mover::arrived late_;  ///< in the first step, until it is reported
  double late_wait_ms_ = 0;    ///< likewise, but said with each report: one may get lost

  data_loader loader_;
  std::thread thread_;
};

} // namespace

std::unique_ptr<executor> make_stage_executor(executor_options options, data_port& port) {
  keep_memory_for_tensors();
  make_libtorch_exact();
  return std::make_unique<stage_executor>(std::move(options), port);
}

} // namespace parcae
