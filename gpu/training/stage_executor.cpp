#include "gpu/training/stage_executor.hpp"

#include "gpu/training/data_loader.hpp"
#include "gpu/training/exact_settings.hpp"
#include "gpu/training/generation_state.hpp"
#include "gpu/training/progress_pace.hpp"
#include "gpu/training/snapshot_feed.hpp"
#include "gpu/training/tensor_account.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/mailbox.hpp"

#include <ATen/Parallel.h>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

// Every step frees and takes the same memory again. Given back to the system in between, it comes back page by page,
// cleared: 2 to 3 % of a step's processor time.
void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, 32 << 20); // the most that glibc takes
}

class stage_executor final : public executor {
public:
  stage_executor(executor_options options, data_port& port) :
      options_(std::move(options)), on_(options_.on ? tensor_device(*options_.on) : processor()), port_(port),
      feed_(on_), loader_(options_, [this] { end_all(); }) {
    thread_ = std::thread([this] { run(); });
  }

  ~stage_executor() override {
    end_all();
    thread_.join();
  }

  void want_snapshot() override {
    const lock held(mutex_);
    if (current_)
      current_->training->want_snapshot();
  }

  void submit(command x) override {
    {
      const lock held(mutex_);
      if (ended_)
        return;
      // What cannot wait for the step in progress.
      if (auto* p = std::get_if<prepare>(&x)) {
        begin_preparation(std::move(*p));
        return;
      }
      if (auto* l = std::get_if<load>(&x)) {
        loader_.begin(std::move(*l));
        return;
      }
      if (auto* a = std::get_if<abort_generation>(&x)) {
        for (auto* g : {current_.get(), next_.get()})
          if (g && g->what.next == a->current)
            g->end();
      } else if (auto* s = std::get_if<stop>(&x)) {
        if (current_ && current_->what.next == s->current && current_->training)
          request_stop(*s);
      } else if (const auto* a =
                     std::get_if<activate>(&x)) { // said again, by a manager that has a right to hear it now
        if (current_ && current_->what.next == a->next && running_)
          options_.report_to(active{a->next});
      }
    }
    queue_.put(std::move(x));
  }

private:
  /// What the main thread is given to do; of a generation that was superseded: to join its preparation.
  using event = std::variant<command, std::shared_ptr<generation_state>>;

  // --- preparation, beside a running generation

  void begin_preparation(prepare x) NEEDS_LOCK(mutex_) {
    if (next_ && next_->what.next == x.next && next_->what.job == x.job) {
      if (next_->has_answered)
        options_.report_to(next_->answer);
      return;
    }
    if (std::pair(x.job, x.next) <= newest_)
      return;
    newest_ = {x.job, x.next};
    if (next_) {
      next_->end();
      queue_.put(std::move(next_));
    }
    next_ = std::make_shared<generation_state>(std::move(x), options_.self, on_, results_);
    next_->preparation = std::thread([this, g = next_.get()] { // which g joins
      use_crash_stack();
      const tensor_account::scope counted(memory_);
      try {
        g->run_preparation(options_, port_, store_);
      } catch (const killed&) {
        end_all();
      }
    });
  }

  /// Any thread. The main thread stops whatever it does.
  void end_all() {
    {
      const lock held(mutex_);
      ended_ = true;
      loader_.close();
      for (auto* x : {current_.get(), next_.get()}) // the main thread may wait for a peer
        if (x)
          x->end();
    }
    queue_.close();
  }

  // --- main thread

  void run() {
    use_crash_stack();
    const tensor_account::scope counted(memory_);
    for (;;) {
      auto x = running_ ? queue_.take_at_once() : queue_.take();
      if (queue_.is_closed())
        break;
      const auto* next_command = x ? std::get_if<command>(&*x) : nullptr;
      try {
        if (next_command)
          std::visit([this](const auto& y) { handle(y); }, *next_command);
        else if (!x)
          train();
      } catch (const killed&) {
        break;
      } catch (const std::exception& e) {
        options_.report_to(failed{next_command ? generation_of(*next_command) : generation{}, failure::computation, 0,
                                  e.what(), inventory_of(store_)});
      }
    }
    end_all();
    queue_.drop(); // joins preparations of superseded generations, which may want the lock
    feed_.close();
    std::shared_ptr<generation_state> current, next; // the same
    const lock held(mutex_);
    current.swap(current_);
    next.swap(next_);
  }

  /// The generation prepared last, if it is g.
  std::shared_ptr<generation_state> prepared_generation(generation g) {
    const lock held(mutex_);
    return next_ && next_->what.next == g ? next_ : nullptr;
  }

  /// Takes it away from `next_`, unless a newer PREPARE has done so.
  std::shared_ptr<generation_state> take_prepared_generation(generation g) {
    const lock held(mutex_);
    return next_ && next_->what.next == g ? std::move(next_) : nullptr;
  }

  void handle(const load&) {} // never queued, see submit
  void handle(const prepare&) {}
  void handle(const guard&) { refuse_keeper_command(); }
  void handle(const confirm&) { refuse_keeper_command(); }
  void handle(const replicate&) { refuse_keeper_command(); }
  void handle(const checkpoint&) { refuse_keeper_command(); }
  void handle(const restore&) { refuse_keeper_command(); }

  void refuse_keeper_command() {
    options_.report_to(failed{{}, failure::refused, 0, "a command for keepers came to a worker", {}});
  }

  void handle(const stop& x) {
    if (!current_ || current_->what.next != x.current || current_->aborted)
      return;
    if (stopped_)
      report_stopped();
    else if (running_) // it came between ACTIVATE and its execution
      request_stop(x);
    else if (failure_)
      options_.report_to(*failure_);
  }

  void request_stop(const stop& x) {
    if (x.snapshot)
      current_->training->request_snapshot();
    current_->training->request_stop();
  }

  /// A newer generation holds or has state: this one is over, though its ABORT never came here.
  void end_superseded(generation by) {
    if (!running_ || !(current_->what.next < by))
      return;
    running_ = false;
    current_->end();
  }

  void handle(const transfer& x) {
    const auto g = prepared_generation(x.next);
    if (!g)
      return;
    end_superseded(x.next);
    if (current_ && current_->transport)
      current_->transport->leave();
    if (g->preparation.joinable())
      g->preparation.join();
    if (g->transferred)
      options_.report_to(*g->transferred);
    if (!g->is_prepared() || g->aborted || g->transferred)
      return;
    if (std::exchange(stored_, g->what.job) != g->what.job)
      store_.clear();
    g->run_transfer(options_, store_, x.at);
  }

  void handle(const activate& x) {
    if (current_ && current_->what.next == x.next) {
      options_.report_to(active{x.next});
      if (evaluated_)
        options_.report_to(*evaluated_);
      if (stopped_)
        report_stopped();
      else if (failure_)
        options_.report_to(*failure_);
      else if (current_->aborted) // by a manager that could not say what becomes of it
        options_.report_to(failed{x.next, failure::communication, 0, "was told to abort it", inventory_of(store_)});
      return;
    }
    auto g = prepared_generation(x.next);
    if (!g || !g->transferred || !std::holds_alternative<ready>(*g->transferred) || g->aborted)
      return;
    g->fault(options_, "activate");
    std::shared_ptr<generation_state> old;
    {
      const lock held(mutex_);
      if (next_ != g)
        return; // superseded
      next_.reset();
      old = std::exchange(current_, std::move(g));
    }
    old.reset();
    stopped_ = false;
    failure_.reset();
    evaluated_.reset();
    at::set_num_threads(static_cast<int>(current_->what.specification.threads));
    current_->training->start(x.at, [this] { return feed_.busy(); });
    if (feed_.wanted())
      current_->training->want_snapshot();
    memory_->begin();
    on_.of().begin_peak();
    pace_.begin();
    running_ = true;
    options_.report_to(active{x.next});
    if (current_->training->is_final())
      send_final_state();
  }

  void handle(const abort_generation& x) {
    aborted answer{x.current, {}, no_step, {}, {}};
    const auto ending =
        take_prepared_generation(x.current); // destroyed after the answer: its preparation may take long
    if (ending) {
      const auto& target = ending->what.target;
      if (ending->is_rank()) // it may hold its stage already, without having heard ACTIVATE
        if (const auto held = store_.find(target.first_layer[target.stage_of(ending->self)]); held != store_.end())
          answer.at = held->second.at;
    } else if (current_ && current_->what.next == x.current) {
      running_ = false;
      current_->end_work();
      const auto& training = *current_->training;
      answer.result = training.result();
      if (!training.voided()) {
        answer.at = training.at();
        answer.complete = training.complete_step();
      }
    }
    if (evaluated_ && evaluated_->current == x.current)
      options_.report_to(*evaluated_);
    answer.held = inventory_of(store_);
    options_.report_to(std::move(answer));
  }

  void handle(const decide& x) {
    if (current_ && current_->what.next == x.current && !running_) {
      auto& training = *current_->training;
      try {
        if (x.result.step != no_step && training.complete_step() == x.result.step &&
            training.at().steps == x.result.step) {
          training.apply(x.result);
          committed(x.result);
          send_snapshot(x.result);
        } else {
          training.drop_gradients();
        }
      } catch (const std::exception& e) {
        void_stage(e.what());
      }
    }
    options_.report_to(decided{x.current, inventory_of(store_)});
  }

  void handle(const release& x) {
    {
      const lock held(mutex_);
      if (x.current < newest_.second)
        return;
    }
    end_superseded(x.current);
    std::erase_if(store_,
                  [&](const auto& entry) { return !std::binary_search(x.keep.begin(), x.keep.end(), entry.first); });
    // A spare's part in the change is over, and so is the generation it left.
    std::shared_ptr<generation_state> old_current, old_next;
    const lock held(mutex_);
    if (current_ && current_->what.next < x.current)
      old_current.swap(current_);
    if (next_ && next_->what.next == x.current && !next_->is_rank())
      old_next.swap(next_);
  }

  void handle(const protect& x) {
    feed_.begin(x, port_);
    if (feed_.wanted() && running_)
      current_->training->want_snapshot();
    if (!current_ || running_ || current_->training->voided())
      return;
    if (x.whole)
      send_final_state(true);
    else if (!current_->aborted && current_->training->is_final())
      send_final_state();
  }

  /// There will be no further commit to send a snapshot at.
  void send_final_state(bool whole = false) {
    commit_result result = current_->training->result();
    result.step = current_->training->at().steps - 1;
    result.snapshot = true;
    send_snapshot(result, whole);
  }

  void handle(const forget& x) {
    feed_.forget(x.job);
    loader_.forget(x.job);
    std::shared_ptr<generation_state> old_current, old_next;
    const lock held(mutex_);
    if (current_ && current_->what.job == x.job) {
      running_ = false;
      old_current.swap(current_);
    }
    if (stored_ == x.job)
      store_.clear();
    if (next_ && next_->what.job == x.job) // else the next job's, already being prepared
      old_next.swap(next_);
  }

  void train() {
    auto& g = *current_;
    auto& training = *g.training;
    try {
      if (training.evaluation_is_due())
        evaluate();
      if (training.is_final())
        return end_training();
      const auto result = training.step();
      committed(result);
      g.fault(options_, "committed");
      send_snapshot(result);
      if (training.wants_snapshot())
        feed_.want(); // also if this generation ends before it can be taken
      const bool last = training.at().steps == g.what.specification.steps;
      if (const auto step_ms = pace_.step_done(g.what.target.ranks(), last || result.stop)) {
        auto times = training.take_times();
        auto waits = training.take_waits();
        options_.report_to(progress{g.what.next, training.at(), result, *step_ms, std::move(times.layers),
                                    times.other_ms, times.waited_ms, peak_bytes(), waits.ms,
                                    std::move(waits.longest_for), g.transport->state()});
      }
      if (result.stop && !last)
        end_training();
    } catch (const generation_aborted&) {
      running_ = false;
    } catch (const communication_error& e) {
      running_ = false;
      if (!g.aborted)
        end_failed(failure::communication, e.what());
    } catch (const data_error& e) { // in a forward pass: what is held is whole
      running_ = false;
      end_failed(dynamic_cast<const sample_error*>(&e) ? failure::sample : failure::data, e.what());
    } catch (const std::exception& e) {
      running_ = false;
      void_stage(e.what());
    }
  }

  void evaluate() {
    const auto began = steady::now();
    const auto& training = *current_->training;
    auto x = current_->training->evaluate();
    if (!x.sums.empty()) {
      evaluated_ = {current_->what.next, training.at(), x.first_replica, std::move(x.sums)};
      options_.report_to(*evaluated_);
    }
    pace_.leave_out(steady::now() - began);
  }

  /// By the stop bit, or because there is nothing to do any more but to hold the state and have it kept.
  void end_training() {
    running_ = false;
    const auto& training = *current_->training;
    const bool is_kept = training.result().step + 1 == training.at().steps && training.result().snapshot;
    if (training.is_final() && (feed_.wanted() || !is_kept))
      send_final_state(); // to keepers that came after the last commit, or that it did not go to
    report_stopped();
  }

  void committed(const commit_result& result) const {
    if (options_.on_commit)
      options_.on_commit(current_->training->at(), result);
  }

  /// Something that should not fail failed: the stage's shards count only if no apply had begun.
  void void_stage(const std::string& why) {
    auto& training = *current_->training;
    if (training.voided()) {
      for (auto layer = training.first_layer(); layer < training.last_layer(); ++layer)
        store_.erase(layer);
      training.drop_gradients(); // DECIDE shall not apply them
    }
    end_failed(failure::computation, why);
  }

  /// The generation that was activated ended by itself.
  void end_failed(failure kind, const std::string& why) {
    failure_ = failed{current_->what.next, kind, 0, why, inventory_of(store_)};
    options_.report_to(*failure_);
  }

  void report_stopped() {
    stopped_ = true;
    const auto& training = *current_->training;
    options_.report_to(stopped{current_->what.next, training.at(), inventory_of(store_), training.is_final()});
  }

  std::uint64_t peak_bytes() const { return on_.of().facts().host ? memory_->peak() : on_.of().peak_bytes(); }

  void send_snapshot(const commit_result& result, bool whole = false) {
    if (feed_.send(*current_, store_, result, whole))
      current_->fault(options_, "snapshot");
  }

  const executor_options options_;
  const tensor_device on_;
  data_port& port_;
  const std::shared_ptr<tensor_account> memory_ = tensor_account::make();
  host_results results_{on_}; ///< the main thread's

  mailbox<event> queue_;
  mutex mutex_;
  std::shared_ptr<generation_state> current_; ///< set by the main thread with mutex_ held; it reads without
  std::shared_ptr<generation_state> next_ GUARDED_BY(mutex_);
  std::pair<job_id, generation> newest_ GUARDED_BY(mutex_); ///< of the PREPAREs seen
  bool ended_ GUARDED_BY(mutex_) = false;                   ///< destroyed, or by a fault

  // Main thread only.
  layer_store store_;
  job_id stored_;                      ///< whose shards these are
  std::atomic<bool> running_ = false;  ///< set by the main thread
  bool stopped_ = false;               ///< current_ ended by the stop bit or at the final version
  std::optional<failed> failure_;      ///< of current_; told again when it is asked for
  std::optional<evaluated> evaluated_; ///< by current_, the newest; told again with the answer to ACTIVATE and ABORT
  snapshot_feed feed_;
  progress_pace pace_;

  data_loader loader_;
  std::thread thread_;
};

} // namespace

std::unique_ptr<executor> make_stage_executor(executor_options options, data_port& port) {
  keep_freed_memory();
  make_libtorch_exact();
  return std::make_unique<stage_executor>(std::move(options), port);
}

} // namespace parcae
