#include "tests/support/executor_cluster.hpp"

#include "actors/conductor/model_facts.hpp"
#include "gpu/keeper/keeper.hpp"
#include "gpu/training/stage_executor.hpp"
#include "protocols/model/model_description.hpp"
#include "tests/support/dawdle.hpp"
#include "tests/support/slow_relay.hpp"
#include "tests/support/texts.hpp"

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

} // namespace

struct executor_cluster::instance {
  struct place {
    participant where;
    std::unique_ptr<executor> work;
  };

  std::unique_ptr<data_port> port;
  std::unique_ptr<slow_relay> link; ///< null: none
  bool keeper = false;
  fault_plan faults;
  std::mutex mutex;
  std::condition_variable thawed;
  bool frozen = false;
  bool closing = false;
  std::atomic<bool> gone = false; ///< neither heard nor spoken to any more
  std::atomic<bool> dead = false; ///< likewise: its process is
  std::vector<place> slots;       // last: their threads use the rest

  ~instance() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
      frozen = false;
    }
    thawed.notify_all();
  }
};

executor_cluster::executor_cluster(job_specification job, conductor_options options) :
    job_(std::move(job)), options_(options) {
  start_manager();
  planner = [this](std::uint32_t slots, const std::vector<layer_cost>& costs) {
    return best_configuration(job_, {costs}, slots);
  };
}

executor_cluster::~executor_cluster() {
  for (auto& [name, x] : instances_)
    x->gone = true;
  // Executors may still be training, and what they call back into must outlive them.
  buried_.clear();
  instances_.clear();
}

void executor_cluster::keep_shape(std::uint32_t width, std::uint32_t depth) {
  planner = [this, width, depth](std::uint32_t slots, const auto&) {
    return slots < width * depth ? configuration{0, 0, {}, 0, "not all are there yet"} : shape(job_, width, depth);
  };
}

void executor_cluster::add_workers(const std::vector<std::string>& names, const fault_plan& faults) {
  for (const auto& name : names)
    add_worker(name, faults);
}

void executor_cluster::add_workers(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    add_worker("w" + std::to_string(i));
}

void executor_cluster::add_worker(const std::string& name, fault_plan faults) {
  add(name, false, std::move(faults));
}

void executor_cluster::add_keeper(const std::string& name, fault_plan faults) {
  add(name, true, std::move(faults));
}

void executor_cluster::add_keeper_behind(const std::string& name, std::uint64_t bytes_per_second,
                                         std::uint64_t damaged) {
  add(name, true, {}, bytes_per_second, damaged);
}

void executor_cluster::push(conductor_event x) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(x));
  }
  wake_.notify_all();
}

void executor_cluster::add(const std::string& name, bool keeper, fault_plan faults, std::uint64_t bytes_per_second,
                           std::uint64_t damaged) {
  dawdle();
  auto x = std::make_unique<instance>();
  x->port = make_data_port("127.0.0.1", 0, bundle);
  if (bytes_per_second > 0)
    x->link = std::make_unique<slow_relay>(x->port->port(), bytes_per_second, damaged);
  x->faults = std::move(faults);
  x->keeper = keeper;
  const incarnation life{++lives_};
  x->slots.resize(keeper ? 1 : workers.slots);
  for (std::uint32_t i = 0; i < x->slots.size(); ++i)
    x->slots[i].where = {{name, life, i}, "127.0.0.1", x->link ? x->link->port() : x->port->port()};
  for (auto& [where, work] : x->slots) {
    auto options = options_for(*x, where.slot, keeper);
    work = keeper ? make_keeper(std::move(options), *x->port) : make_stage_executor(std::move(options), *x->port);
  }
  if (auto& old = instances_[name])
    buried_.push_back(std::move(old));
  join(*(instances_[name] = std::move(x)));
}

void executor_cluster::join(const instance& x) {
  for (const auto& place : x.slots) {
    const auto& name = place.where.slot.instance;
    handle(slot_joined{place.where, x.keeper, {}, {.id = machine_of ? machine_of(name) : ""}});
  }
}

executor_options executor_cluster::options_for(instance& of, const slot_id& slot, bool keeper) {
  executor_options options;
  options.self = slot;
  options.checkpoints = checkpoints_;
  ++slots_;
  if (!keeper && workers.on)
    options.on = workers.on(slots_);
  if (options.on)
    options.device_bytes = workers.device_bytes;
  if (!keeper && workers.nccl)
    options.nccl = workers.nccl(slots_);
  options.report_to = [this, self = &of, slot](report what) {
    if (!self->gone)
      push(slot_reported{slot, std::move(what)});
  };
  if (of.faults || lead.count() > 0)
    options.on_fault_point = [this, self = &of](const fault_point& at) {
      if (std::string_view(at.phase) == "forward")
        wait_for_test(*self);
      const auto action = self->gone || !self->faults ? fault_action::none : self->faults(at);
      if (action == fault_action::none)
        return;
      std::unique_lock lock(self->mutex);
      if (self->closing)
        return;
      self->gone = true;
      self->dead = action == fault_action::kill;
      for (const auto& place : self->slots)
        push(slot_lost{place.where.slot, "injected"});
      if (action == fault_action::kill)
        throw killed{};
      self->frozen = true;
      self->thawed.wait(lock, [self] { return !self->frozen; });
    };
  options.on_load = [this](const loader_record& record) {
    const std::lock_guard lock(mutex_);
    loads_.push_back(record);
  };
  options.on_commit = [this](const version&, const commit_result& result) {
    const std::lock_guard lock(mutex_);
    losses_[result.step] = result.loss;
  };
  return options;
}

void executor_cluster::wait_for_test(instance& of) {
  if (lead.count() == 0)
    return;
  const auto until = steady::now() + std::chrono::seconds(20);
  std::unique_lock lock(of.mutex);
  while (!of.closing && !of.gone && steady::now() > handled_at_.load() + lead && steady::now() < until)
    of.thawed.wait_for(lock, milliseconds(1));
}

steady::time_point executor_cluster::now() const {
  const auto handled_at = handled_at_.load();
  const bool may_stand_still = lead.count() > 0 && handled_at != steady::time_point{};
  return (may_stand_still ? std::min(steady::now(), handled_at + lead) : steady::now()) - stood_still_;
}

void executor_cluster::note_handling() {
  const auto before = now();
  handled_at_ = steady::now();
  stood_still_ = handled_at_.load() - before;
}

void executor_cluster::kill(const std::vector<std::string>& names) {
  dawdle();
  for (const auto& name : names)
    instances_.at(name)->gone = true;
  std::vector<slot_id> lost;
  for (const auto& name : names) {
    for (const auto& place : instances_.at(name)->slots)
      lost.push_back(place.where.slot);
    instances_.erase(name);
  }
  for (const auto& slot : lost)
    handle(slot_lost{slot, "killed"});
}

void executor_cluster::notice(const std::string& name, milliseconds left) {
  dawdle();
  for (const auto& place : instances_.at(name)->slots)
    handle(slot_leaving{place.where.slot, now() + left});
}

void executor_cluster::thaw(const std::string& name) {
  dawdle();
  auto& x = *instances_.at(name);
  for (const auto& place : x.slots)
    thawed_.insert(place.where.slot);
  {
    const std::lock_guard lock(x.mutex);
    x.frozen = false;
    x.gone = false;
  }
  x.thawed.notify_all();
}

void executor_cluster::kill_manager() {
  dawdle();
  conductor_.reset();
}

void executor_cluster::start_manager() {
  dawdle();
  conductor_ = conductor::make({job_id{1}, job_, facts_of(job_), options_, secret_key{{42}}, journal_, {}});
  view_.reset();
  for (const auto& [name, x] : instances_)
    if (!x->gone)
      join(*x);
}

void executor_cluster::send(const conductor_event& x) {
  dawdle();
  handle(x);
}

const job_view& executor_cluster::view() const {
  if (!view_)
    view_ = conductor_->view();
  return *view_;
}

void executor_cluster::handle(const conductor_event& x) {
  if (const auto* r = std::get_if<slot_reported>(&x)) {
    if (thawed_.contains(r->from))
      ++late_reports_;
    if (on_report)
      on_report(r->from, r->what);
  }
  if (const auto* lost = std::get_if<slot_lost>(&x))
    if (const auto i = instances_.find(lost->slot.instance); i != instances_.end() && i->second->dead)
      for (auto& place : i->second->slots) // a process that ends takes all of them along
        place.work.reset();
  if (!conductor_)
    return;
  auto effects = conductor_->handle(now(), x);
  view_.reset();
  for (auto& effect : effects)
    if (conductor_)
      carry_out(std::move(effect));
}

void executor_cluster::submit(const slot_id& to, const command& x) {
  const auto it = instances_.find(to.instance);
  if (it == instances_.end() || it->second->gone)
    return;
  auto& slots = it->second->slots;
  if (to.index < slots.size() && slots[to.index].where.slot == to)
    slots[to.index].work->submit(x);
}

void executor_cluster::carry_out(effect x) {
  if (on_effect && !on_effect(x))
    return;
  if (auto* t = std::get_if<tell>(&x)) {
    submit(t->to, *t->what);
  } else if (const auto* r = std::get_if<request_plan>(&x)) {
    handle(plan_chosen{r->request, {planner(r->now.slots, r->now.costs), {}}});
  } else if (const auto* e = std::get_if<job_ended>(&x)) {
    ended_ = true;
    good_ = e->good;
    log_.push_back("ended: " + e->why);
  } else if (const auto* j = std::get_if<record>(&x)) {
    journal_ = j->now;
    log_.push_back(j->what);
  } else if (const auto* l = std::get_if<log_line>(&x)) {
    log_.push_back(l->text);
    static const bool loud = std::getenv("PARCAE_TEST_LOG") != nullptr;
    if (loud)
      std::cerr << to_string(view().now) << ": " << l->text << "\n";
  }
}

bool executor_cluster::run_until(const std::function<bool()>& done, milliseconds limit) {
  dawdle();
  const auto until = steady::now() + limit;
  while (!done()) {
    if (ended_)
      return false;
    dawdler::instance().sleep_once_in(16); // else each message waits, and a test takes minutes
    note_handling();
    std::vector<conductor_event> events;
    {
      std::unique_lock lock(mutex_);
      auto wake_at = std::min(until, steady::now() + milliseconds(10)); // `done` may look at more than events tell
      if (const auto deadline = conductor_ ? conductor_->deadline() : std::nullopt)
        wake_at = std::min(wake_at, *deadline + stood_still_);
      wake_.wait_until(lock, wake_at, [this] { return !queue_.empty(); });
      events.swap(queue_);
    }
    for (auto& event : events)
      handle(event);
    if (const auto deadline = conductor_ ? conductor_->deadline() : std::nullopt; deadline && now() >= *deadline)
      handle(tick{});
    if (steady::now() >= until)
      return done();
  }
  return true;
}

bool executor_cluster::run_until_ended(milliseconds limit) {
  run_until([this] { return ended_; }, limit);
  return ended_ && good_;
}

std::string executor_cluster::final_digest() const {
  std::string all;
  for (const auto& d : view().layer_digests)
    all += d.sha256 + "\n";
  return all;
}

void step_gate::see(const effect& x) {
  const auto* t = std::get_if<tell>(&x);
  const auto* s = t ? std::get_if<stop>(t->what.get()) : nullptr;
  if (!s)
    return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = s->current.value;
  }
  changed_.notify_all();
}

fault_action step_gate::pass(const fault_point& at) {
  const std::string_view phase = at.phase;
  std::unique_lock lock(mutex_);
  if (phase == "take_over")
    taken_over_.emplace(at.at.value, at.step);
  if (phase != "forward" || at.at.value >= last_)
    return fault_action::none;
  const auto taken = taken_over_.find(at.at.value);
  if (nccl_ ? taken != taken_over_.end() && at.step > taken->second : at.step >= 2 * at.at.value)
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return stopping_ >= at.at.value; });
  return fault_action::none;
}

bool step_gate::may_stop(std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  return !nccl_ || taken_over_.contains(generation);
}

job_specification small_job() {
  job_specification job;
  job.steps = 24;
  job.seed = 7;
  job.model = {"gpt", 4, 32, 2, 32, 256, 0.1, true};
  job.data = {"text", texts()};
  job.global_batch = 16;
  job.micro_batch = 2;
  job.virtual_replicas = 8;
  job.optimizer.learning_rate = 3e-3;
  job.optimizer.schedule = "cosine";
  job.optimizer.warmup_steps = 3;
  job.optimizer.weight_decay = 0.01;
  job.optimizer.clip_norm = 0.5;
  job.keeper_every = 4;
  return job;
}

configuration shape(const job_specification& job, std::uint32_t width, std::uint32_t depth) {
  const std::vector<double> equal(describe(job.model).layers.size(), 1.0);
  return {width, depth, partition_layers(equal, depth), 0, "asked for by the test"};
}

std::string undisturbed_digest(const job_specification& job, const worker_kind& workers) {
  executor_cluster cluster(job);
  cluster.workers = {workers.on};
  cluster.keep_shape(1, 1);
  cluster.add_keeper("keeper");
  cluster.add_worker("alone");
  return cluster.run_until_ended() ? cluster.final_digest() : "the undisturbed run failed";
}

std::string digest_after(const job_specification& job, const shapes& taken, const worker_kind& workers) {
  step_gate gate(taken.size(), workers.nccl != nullptr);
  executor_cluster cluster(job);
  cluster.workers = workers;
  cluster.on_effect = [&](const effect& x) {
    gate.see(x);
    return true;
  };
  std::uint32_t slots = 0;
  for (auto [width, depth] : taken)
    slots = std::max(slots, width * depth);
  cluster.planner = [&, next = std::size_t{0}](std::uint32_t present, const auto&) mutable {
    if (present < slots)
      return configuration{0, 0, {}, 0, "not all are there yet"};
    const auto [width, depth] = taken[std::min(next++, taken.size() - 1)];
    return shape(job, width, depth);
  };
  cluster.add_keeper("keeper");
  for (std::uint32_t i = 0; i * workers.slots < slots; ++i)
    cluster.add_worker("w" + std::to_string(i), [&](const fault_point& at) { return gate.pass(at); });
  for (std::size_t i = 0; i + 1 < taken.size(); ++i) {
    const auto went_on = cluster.run_until([&] {
      return cluster.view().current.value == i + 1 && cluster.view().now == phase::running &&
             cluster.view().steps_done > i && gate.may_stop(i + 1);
    });
    if (!went_on)
      return "shape " + std::to_string(i) + " did not run: " + cluster.log().back();
    cluster.send(plan_wanted{"the test's next shape"});
  }
  if (!cluster.run_until_ended())
    return "did not end: " + cluster.log().back();
  if (cluster.view().replayed_steps > 0 || cluster.view().current.value != taken.size())
    return "steps were computed twice, or other shapes were taken";
  return cluster.final_digest();
}

} // namespace parcae
