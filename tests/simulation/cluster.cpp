#include "tests/simulation/cluster.hpp"

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/front.hpp"
#include "actors/manager/journal_store.hpp"
#include "protocols/model/early_stop.hpp"

#include <caf/actor_registry.hpp>
#include <caf/all.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace parcae::simulation {

namespace {

struct dialler_state {
  std::deque<std::pair<caf::typed_response_promise<caf::node_id, caf::strong_actor_ptr, std::set<std::string>>,
                       network::answer>>
      answers;
};

using dialling_actor = dialler_actor::extend<caf::reacts_to<timer_atom>>;

/// Stands before the network as CAF's middleman does.
dialling_actor::behavior_type dialler(dialling_actor::stateful_pointer<dialler_state> self, network* net,
                                      const process_ptr& p) {
  return {[=](caf::connect_atom, const std::string& place, std::uint16_t) {
            auto promise = self->make_response_promise<caf::node_id, caf::strong_actor_ptr, std::set<std::string>>();
            net->dial(p, place, [self, promise, p, me = dialling_actor{self}](network::answer x) {
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

cluster::cluster(const cluster_options& options) :
    options_(options), engine_(options.seed),
    witness_({{}, options.job, facts_of(options.job), registry_config{}.conductor, {}, {}, {}}),
    network_(engine_, options.network), plane_(engine_, witness_, options.data),
    faulty_(options.wrong, witness_.seen()) {
  network_.on_message = [this](const connection& c, int to, const caf::message& x) { return pass(c, to, x); };
  network_.on_arrival = [this](const connection& c, int to, const caf::message& x) { hear(c, to, x); };
}

cluster::~cluster() {
  kill_all_managers();
  for (const auto& [name, x] : std::map(nodes_))
    end_node(x, true);
  engine_.settle(); // actors end before what they use
}

void cluster::note(const std::string& what) const {
  if (options_.tells)
    fmt::print("{:9.3f} * {}\n", std::chrono::duration<double>(engine_.now() - time_point{} - 1h).count(), what);
  std::fflush(stdout);
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
  hello.role = x->keeper ? role::keeper : x->gateway ? role::gateway : role::worker;
  hello.host = "127.0.0.1";
  hello.port = 1;
  hello.slots = slots;
  hello.processor = "cpu";
  hello.machine.id = x->machine;
  for (const auto& place : places())
    result.managers.push_back({place, 1});
  result.seed = chance().number();
  result.source.make = [this, x](const slot_id& slot, std::function<void(report)> report_to) {
    return make_executor(x, slot, std::move(report_to));
  };
  result.source.retire = [this, x](std::unique_ptr<executor> e) {
    std::erase_if(x->workers, [&](const auto& w) { return w.second == e.get(); });
    x->answers = nullptr;
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
  const executor_surroundings around{engine_,
                                     plane_,
                                     witness_,
                                     spoiler_of(options_.wrong),
                                     x->lacks,
                                     options_.wake,
                                     keeper_spoiler_of(options_.wrong),
                                     layer_with_course(options_.job),
                                     options_.wrong == fault::caches_lie,
                                     gateway_spoiler_of(options_.wrong),
                                     options_.comes};
  x->slots.push_back(slot);
  witness_.joined(slot, x->pristine);
  if (x->keeper)
    return std::make_unique<simulated_keeper>(around, x->process, slot, disk_of(x->name), std::move(report_to));
  if (x->gateway) {
    auto result = std::make_unique<simulated_gateway>(around, x->process, slot, std::move(report_to));
    x->answers = result.get();
    return result;
  }
  auto result = std::make_unique<simulated_worker>(around, x->process, slot, std::move(report_to));
  x->workers[slot] = result.get();
  return result;
}

void cluster::start_node(const std::string& name, bool keeper, std::uint32_t slots, const std::string& machine) {
  note(fmt::format("{} starts with {} slots", name, slots));
  const auto x = std::make_shared<node>();
  x->name = name;
  x->keeper = keeper;
  x->machine = machine;
  start(x, slots);
}

void cluster::start_gateway(const std::string& name) {
  note(name + " starts");
  const auto x = std::make_shared<node>();
  x->name = name;
  x->gateway = true;
  start(x, 1);
}

void cluster::start(const node_ptr& x, std::uint32_t slots) {
  const auto& name = x->name;
  nodes_[name] = x;
  x->process = engine_.start_process(name);
  plane_.slow_down(x->process, 0ns); // one of that name may have been before
  if (x->keeper)
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
    witness_.disturbed(slot, engine_.now());
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
  keeper_was_leaving_ |= x->keeper;
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

void cluster::lose_if_next(const slot_id& of, bool command, std::size_t index) {
  if (lost_next_ != std::pair(command, index))
    return;
  lost_next_.reset();
  const auto known = nodes_.find(of.instance);
  if (known == nodes_.end())
    return;
  disturb(known->second, fmt::format("loses its connection, with {} {}", command ? "command" : "report", index));
  network_.sever(known->second->process);
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
  lost_next_.reset();
  heal_managers();
}

} // namespace parcae::simulation
