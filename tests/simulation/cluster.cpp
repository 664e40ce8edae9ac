#include "tests/simulation/cluster.hpp"

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/front.hpp"
#include "actors/manager/journal_store.hpp"

#include <caf/actor_registry.hpp>
#include <caf/all.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <utility>

namespace parcae::simulation {

namespace {

constexpr std::uint64_t manager_life = 77;
constexpr job_id the_job{1};
const auto job_entry = name_in_journal(the_job);
const auto last_entry = name_in_journal(the_job, last_part);
const auto memory_entry = name_in_journal(the_job, memory_part);

struct dialler_state {
  std::deque<std::pair<caf::typed_response_promise<caf::node_id, caf::strong_actor_ptr, std::set<std::string>>,
                       network::answer>>
      answers;
};

using dialling_actor = dialler_actor::extend<caf::reacts_to<timer_atom>>;

/// Stands before the network as CAF's middleman does.
dialling_actor::behavior_type dialler(dialling_actor::stateful_pointer<dialler_state> self, network* net,
                                      const process_ptr& p) {
  return {[=](caf::connect_atom, const std::string&, std::uint16_t) {
            auto promise = self->make_response_promise<caf::node_id, caf::strong_actor_ptr, std::set<std::string>>();
            net->dial(p, [self, promise, p, me = dialling_actor{self}](network::answer x) {
              if (!p->alive)
                return;
              self->state.answers.emplace_back(promise, std::move(x));
              caf::anon_send(me, timer_atom_v); // a promise is kept by its actor
            });
            return promise;
          },
          [=](timer_atom) {
            auto [promise, x] = std::move(self->state.answers.front());
            self->state.answers.pop_front();
            if (x.problem)
              promise.deliver(std::move(x.problem));
            else
              promise.deliver(x.front->node(), x.front, std::move(x.interface));
          }};
}

} // namespace

/// The journal's, of one life of the manager.
struct cluster::store final : journal_store {
  store(cluster& c, process_ptr p) : all(c), owner(std::move(p)) {}

  std::vector<journal_entry> read() override {
    if (all.journal_.unread > 0) {
      --all.journal_.unread;
      throw std::runtime_error("the store cannot be read");
    }
    std::vector<journal_entry> result;
    for (const auto& [name, bytes] : all.journal_.values)
      result.push_back({name, bytes});
    return result;
  }

  void write(const std::vector<journal_entry>& entries) override {
    if (!owner->alive)
      throw std::runtime_error("the process is dead");
    const bool fails = std::ranges::any_of(entries, matters) && std::exchange(all.journal_.fails, false);
    if (!fails || all.chance().percent(50))
      for (const auto& x : entries)
        put(x);
    if (fails)
      throw std::runtime_error("an error of the store");
  }

  /// Without the others the manager goes on.
  static bool matters(const journal_entry& x) {
    return x.name != name_in_journal(the_job, history_part) && x.name != name_in_journal(the_job, reached_part);
  }

  void put(const journal_entry& x) {
    if (x.bytes.empty()) {
      all.journal_.values.erase(x.name);
    } else if (x.name == memory_entry) {
      const auto now = all.faulty_.in_place_of(decode_journal<job_memory>(x.bytes), all.chance());
      if (!now)
        return;
      all.witness_.durable(*now, all.engine_.now());
      all.journal_.values[x.name] = encode(*now);
    } else {
      all.journal_.values[x.name] = x.bytes;
    }
  }

  cluster& all;
  const process_ptr owner;
};

cluster::cluster(const cluster_options& options) :
    options_(options), engine_(options.seed),
    witness_({{}, options.job, facts_of(options.job), registry_config{}.conductor, {}, {}, {}}),
    network_(engine_, options.network), plane_(engine_, witness_, options.data),
    faulty_(options.wrong, witness_.seen()) {
  network_.on_message = [this](int to, const caf::message& x) { return pass(to, x); };
  network_.on_arrival = [this](int to, const caf::message& x) { hear(to, x); };
}

cluster::~cluster() {
  if (has_manager())
    kill_manager();
  for (const auto& [name, x] : std::map(nodes_))
    end_node(x, true);
  engine_.settle(); // actors end before what they use
}

void cluster::note(const std::string& what) const {
  if (options_.tells)
    fmt::print("{:9.3f} * {}\n", std::chrono::duration<double>(engine_.now() - time_point{} - 1h).count(), what);
  std::fflush(stdout);
}

// The manager

void cluster::start_manager() {
  if (closed_) // by harm that was arranged before
    return;
  manager_ = engine_.start_process("manager");
  note("the manager starts");
  try {
    engine_.within(manager_, [this] { listen(manager_); });
  } catch (const std::runtime_error& e) {
    note(e.what());
    kill_manager();
    return engine_.after(chance().between(50ms, 2s), [this] {
      if (!has_manager())
        start_manager();
    });
  }
  witness_.manager_starts();
  if (!journal_.values.contains(job_entry)) // who submitted it was not told that it is taken
    submit();
  if (cancelled_)
    ask_to_cancel();
}

// As runtime/cli/manager.cpp does it.
void cluster::listen(const process_ptr& manager) {
  auto& system = engine_.system();
  const auto kept = std::make_shared<store>(*this, manager);
  auto known = recovered_from(kept->read());
  auto cluster = known.cluster.value_or(cluster_identity{manager_life, {1, 2, 3, 4}, {}});
  cluster.managers.push_back(chance().number() | 1);
  kept->put(entry_of(cluster));
  keeping_ = system.spawn(journal, kept);
  registry_config x;
  x.own_threads = false;
  if (options_.wrong == fault::limits_forgotten)
    for (auto* limit : {&x.conductor.request_limit, &x.conductor.prepare_limit, &x.conductor.transfer_limit,
                        &x.conductor.progress_limit, &x.conductor.stop_limit})
      *limit *= 1'000;
  x.manager_life = cluster.life;
  x.manager = cluster.managers.back();
  x.managers.insert(cluster.managers.begin(), cluster.managers.end());
  std::ranges::copy(cluster.secret, x.secret.words.begin());
  x.journal = keeping_;
  x.jobs = std::move(known.jobs);
  registry_ = system.spawn(registry, std::move(x));
  const auto published = system.spawn(front, registry_, nullptr);
  front_ = caf::actor_cast<caf::actor>(published);
  engine_.slow_down(keeping_.address(), chance().between(1ms, chance().percent(20) ? 300ms : 10ms));
  network_.listen(manager, caf::actor_cast<caf::strong_actor_ptr>(published), system.message_types(published));
  keep_watch_on_journal(manager);
}

// The process ends with its journal: its other actors are told to, and a second later it is gone.
void cluster::keep_watch_on_journal(const process_ptr& manager) {
  caf::actor_cast<caf::abstract_actor*>(keeping_)->attach_functor([this, manager](const caf::error&) {
    if (!manager->alive)
      return;
    note("the journal cannot be written");
    engine_.after(0ns, [this, manager] {
      if (manager->alive && manager == manager_) {
        caf::anon_send_exit(front_, caf::exit_reason::kill);
        caf::anon_send_exit(registry_, caf::exit_reason::user_shutdown);
      }
    });
    engine_.after(1s, [this, manager] {
      if (manager->alive && manager == manager_)
        kill_manager();
    });
  });
}

void cluster::kill_manager() {
  note("the manager is killed");
  const auto dead = manager_;
  registry_ = nullptr;
  keeping_ = nullptr;
  front_ = nullptr;
  engine_.kill(dead);
  network_.lose(dead, false);
}

void cluster::freeze_manager(nanoseconds x) {
  if (!has_manager() || manager_->frozen)
    return;
  note(fmt::format("the manager stands still for {} ms", x / 1ms));
  const auto it = manager_;
  engine_.freeze(it);
  network_.freeze(it);
  engine_.after(x, [this, it] {
    if (!it->alive || !it->frozen)
      return;
    note("the manager goes on");
    engine_.thaw(it);
    network_.thaw(it);
    witness_.manager_goes_on();
  });
}

void cluster::submit() {
  submit_request x;
  x.job = options_.job;
  caf::anon_send(registry_, client_request{encode(request{x})});
}

void cluster::cancel() {
  note("the job is cancelled");
  cancelled_ = true;
  if (has_manager())
    ask_to_cancel();
}

void cluster::ask_to_cancel() {
  caf::anon_send(registry_, client_request{encode(request{cancel_request{the_job.value}})});
}

bool cluster::is_over() const {
  // If the manager dies at that moment the next one says so from the conductor's last words.
  if (witness_.seen().durable.over || journal_.values.contains(last_entry))
    return true;
  const auto kept = journal_.values.find(job_entry);
  return cancelled_ && kept != journal_.values.end() && // before it ran
         parcae::is_over(job_state(decode_journal<job_record>(kept->second).state));
}

// Nodes

std::shared_ptr<disk> cluster::disk_of(const std::string& keeper) {
  auto& result = disks_[keeper];
  if (!result)
    result = std::make_shared<disk>();
  return result;
}

instance_config cluster::configuration_of(const node_ptr& x, std::uint32_t slots) {
  instance_config result;
  auto& hello = result.introduction;
  hello.name = x->name;
  hello.role = x->keeper ? role::keeper : role::worker;
  hello.host = "127.0.0.1";
  hello.port = 1;
  hello.slots = slots;
  hello.processor = "cpu";
  result.managers = {{"manager", 1}};
  result.seed = chance().number();
  result.source.make = [this, x](const slot_id& slot, std::function<void(report)> report_to) {
    return make_executor(x, slot, std::move(report_to));
  };
  result.source.retire = [this, x](std::unique_ptr<executor> e) {
    std::erase_if(x->workers, [&](const auto& w) { return w.second == e.get(); });
    --executors_;
  };
  result.die = [this, x] { engine_.after(0ns, [this, x] { end_node(x, false); }); };
  result.ended = [this, x](const instance_ending& how) {
    note(x->name + " ends" + (how.failure.empty() ? "" : ": " + how.failure));
    engine_.after(0ns, [this, x] { end_node(x, false); });
  };
  return result;
}

std::unique_ptr<executor> cluster::make_executor(const node_ptr& x, const slot_id& slot,
                                                 std::function<void(report)> report_to) {
  ++executors_;
  const executor_surroundings around{engine_, plane_, witness_, spoiler_of(options_.wrong), x->lacks};
  x->slots.push_back(slot);
  if (x->pristine)
    witness_.joined(slot);
  if (x->keeper)
    return std::make_unique<simulated_keeper>(around, x->process, slot, disk_of(x->name), std::move(report_to),
                                              options_.spoil_keepers);
  auto result = std::make_unique<simulated_worker>(around, x->process, slot, std::move(report_to));
  x->workers[slot] = result.get();
  return result;
}

void cluster::start_node(const std::string& name, bool keeper, std::uint32_t slots) {
  note(fmt::format("{} starts with {} slots", name, slots));
  const auto x = nodes_[name] = std::make_shared<node>();
  x->name = name;
  x->keeper = keeper;
  x->process = engine_.start_process(name);
  if (keeper)
    keeper_names_.insert(name);
  engine_.within(x->process, [&] {
    auto settings = configuration_of(x, slots);
    settings.dialler = engine_.system().spawn(dialler, &network_, x->process);
    x->instance = engine_.system().spawn(instance, std::move(settings));
  });
}

void cluster::disturb(const node_ptr& x, const std::string& what) {
  note(x->name + " " + what);
  x->pristine = false;
  for (const auto& slot : x->slots)
    witness_.disturbed(slot);
}

void cluster::end_node(const node_ptr& x, bool silently) {
  if (!x->process->alive)
    return;
  disturb(x, "is gone");
  x->instance = nullptr;
  engine_.kill(x->process);
  network_.lose(x->process, silently);
  if (const auto known = nodes_.find(x->name); known != nodes_.end() && known->second == x)
    nodes_.erase(known);
}

void cluster::kill_node(const node_ptr& x, bool silently) {
  disturb(x, silently ? "vanishes with its host" : "is killed");
  end_node(x, silently);
}

void cluster::give_notice(const node_ptr& x, std::chrono::milliseconds grace) {
  disturb(x, fmt::format("is given notice of {} ms", grace.count()));
  x->leaving = true;
  caf::anon_send(x->instance, notice_atom_v, static_cast<std::uint64_t>(grace.count()), std::string("notice"));
}

void cluster::freeze_node(const node_ptr& x, nanoseconds longest) {
  if (x->process->frozen)
    return;
  disturb(x, fmt::format("stands still for {} ms", longest / 1ms));
  engine_.freeze(x->process);
  network_.freeze(x->process);
  engine_.after(longest, [this, x] {
    if (!x->process->alive || !x->process->frozen)
      return;
    note(x->name + " goes on");
    engine_.thaw(x->process);
    network_.thaw(x->process);
  });
}

void cluster::cut_control(const node_ptr& x, nanoseconds longest) {
  disturb(x, fmt::format("is cut off from the manager for {} ms", longest / 1ms));
  network_.cut(x->process);
  engine_.after(longest, [this, x] { network_.heal(x->process); });
}

void cluster::cut_data(const node_ptr& x, nanoseconds longest) {
  disturb(x, fmt::format("is cut off from other nodes for {} ms", longest / 1ms));
  plane_.cut(x->process);
  engine_.after(longest, [this, x] { plane_.heal(x->process); });
}

void cluster::slow_down(const node_ptr& x, nanoseconds longer, nanoseconds longest) {
  disturb(x, fmt::format("takes {} ms more for a shard, for {} ms", longer / 1ms, longest / 1ms));
  plane_.slow_down(x->process, longer);
  engine_.after(longest, [this, x] { plane_.slow_down(x->process, 0ns); });
}

void cluster::reset(const node_ptr& x) {
  disturb(x, "loses its connection");
  network_.reset(x->process);
}

void cluster::break_down(const node_ptr& x) {
  disturb(x, "computes no more");
  for (const auto& [slot, worker] : x->workers)
    worker->break_down();
}

void cluster::lose_data(const node_ptr& x, nanoseconds longest) {
  disturb(x, fmt::format("does without its data for {} ms", longest / 1ms));
  x->lacks->of_data = true;
  engine_.after(longest, [x] { x->lacks->of_data = false; });
}

void cluster::take_memory(const node_ptr& x, nanoseconds longest) {
  disturb(x, fmt::format("has no memory for more for {} ms", longest / 1ms));
  x->lacks->of_memory = true;
  engine_.after(longest, [x] { x->lacks->of_memory = false; });
}

void cluster::heal_all() {
  for (const auto& [name, x] : nodes_) {
    *x->lacks = {};
    network_.heal(x->process);
    plane_.heal(x->process);
    plane_.slow_down(x->process, 0ns);
    if (x->process->frozen) {
      engine_.thaw(x->process);
      network_.thaw(x->process);
    }
  }
  for (const auto& [name, x] : disks_)
    x->full = false;
  journal_.fails = false;
  journal_.unread = 0;
  if (has_manager() && manager_->frozen) {
    engine_.thaw(manager_);
    network_.thaw(manager_);
    witness_.manager_goes_on();
  }
}

} // namespace parcae::simulation
