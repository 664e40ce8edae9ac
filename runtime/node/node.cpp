#include "runtime/node/node.hpp"

#include "actors/node/instance.hpp"
#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/nccl_communicator.hpp"
#include "gpu/device/gpu_health.hpp"
#include "gpu/executor/memory_settings.hpp"
#include "gpu/keeper/keeper.hpp"
#include "gpu/plugin/plugins.hpp"
#include "gpu/training/exact_settings.hpp"
#include "gpu/training/processor_facts.hpp"
#include "gpu/training/stage_executor.hpp"
#include "protocols/base/durable_file.hpp"
#include "protocols/store/store.hpp"
#include "protocols/trust/credentials.hpp"
#include "runtime/gateway/endpoint.hpp"
#include "runtime/node/black_box_sink.hpp"
#include "runtime/node/device_lock.hpp"
#include "runtime/node/device_watch.hpp"
#include "runtime/node/executor_log.hpp"
#include "runtime/node/guardian.hpp"
#include "runtime/node/last_words.hpp"
#include "runtime/node/loader_log.hpp"
#include "runtime/node/machine.hpp"
#include "runtime/node/place_look.hpp"
#include "runtime/node/retirement.hpp"
#include "runtime/process/system.hpp"
#include "runtime/process/termination.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <random>
#include <stdexcept>

namespace parcae {

namespace {

// A keeper whose folder cannot be written to would be found out only when a job has to be on disk.
void require_writable(const std::filesystem::path& folder) {
  std::error_code why;
  try {
    make_folders(folder, file_access::private_);
  } catch (const std::system_error& e) {
    why = e.code();
  }
  if (!why && ::access(folder.c_str(), W_OK | X_OK) != 0)
    why.assign(errno, std::generic_category());
  if (why)
    throw std::runtime_error("cannot write checkpoints to " + folder.string() + " (" + why.message() +
                             "): give another folder with --state");
}

/// What jobs may use, told to people. Unless it is said: what this process may, but of URLs none of this machine.
std::vector<std::filesystem::path> allowed_places(const node_options& options) {
  const std::string may = options.role == role::keeper ? "write checkpoints to" : "read";
  if (options.role == role::gateway)
    return {};
  if (options.data.empty()) {
    spdlog::log(options.manager.bundle.empty() ? spdlog::level::info : spdlog::level::warn,
                "jobs may {} whatever this user may: --data says which folders and prefixes", may);
    return {"/", "s3://", "https://", "http://"};
  }
  auto result = options.data;
  std::string all;
  for (auto& place : result) {
    if (!is_url(place.string()))
      place = std::filesystem::absolute(place);
    all += (all.empty() ? "" : ", ") + place.string();
  }
  spdlog::info("jobs may {} what is below {}", may, all);
  return result;
}

/// What NCCL says of itself comes before this process is ended for it.
static_assert(nccl_limits{}.end < device_limits{}.answer);

/// As long as a large layer may take, and no longer than people who cancelled wait.
constexpr std::chrono::minutes retire_limit{1};

/// What slots compute on, one each; none: the processor.
using slot_devices = std::vector<opened_gpu>;

// A lost instance is what can be repaired.
void end_with_device(const std::string& why) {
  spdlog::critical(why);
  kill(getpid(), SIGKILL);
}

/// NCCL in this process. Outlives executors, as a slot has one communicator after the other.
class nccl_of_slots {
public:
  nccl_of_slots(const slot_devices& devices, bool trusts_network, std::function<void(const std::string&)> on_stuck) {
    for (const auto& x : devices) {
      nccl_access own{.slot = {}, .problem = x.nccl_problem, .trusts_network = trusts_network};
      if (x.nccl)
        own.slot.reset(new nccl_slot{*x.on, *x.nccl, on_stuck});
      slots_.push_back(std::move(own));
    }
  }

  const nccl_access& of(std::uint32_t slot) const { return slots_.at(slot); }

private:
  std::vector<nccl_access> slots_;
};

// Makes the executors of this process, and destroys them away from the actors' threads.
class executor_pool {
public:
  executor_pool(const node_options& options, const slot_devices& devices, const device_facts& facts, data_port& port,
                endpoint* clients) :
      role_(options.role),
      devices_(devices), nccl_(devices, options.trusts_network, end_with_device),
      state_(options.state.empty() ? default_state_folder() : std::filesystem::absolute(options.state)), port_(port),
      clients_(clients), data_(allowed_places(options)), device_bytes_(facts.bytes),
      cores_(std::max(1u, this_machine().cores / *options.slots)), naps_(options.naps), faults_(options.faults),
      inject_(!options.faults.empty()) {
    if (!options.loader_log.empty())
      log_.emplace(options.loader_log);
    if (role_ == role::keeper)
      require_writable(state_);
  }

  std::unique_ptr<executor> make(const slot_id& slot, std::function<void(report)> report_to) {
    executor_options options;
    options.self = slot;
    options.cores = cores_;
    options.naps = naps_;
    options.data = data_;
    options.report_to = std::move(report_to);
    if (!devices_.empty()) {
      options.on = devices_.at(slot.index).on.get();
      options.device_bytes = device_bytes_;
      options.on_spoilt = end_with_device;
      options.nccl = nccl_.of(slot.index);
    }
    if (role_ == role::keeper)
      options.checkpoints = state_;
    if (inject_)
      options.on_fault_point = [this](const fault_point& x) { faults_(x); };
    if (log_)
      options.on_load = [this](const loader_record& x) { log_->write(x); };
    if (role_ == role::keeper)
      return make_logged_executor(std::move(options),
                                  [this](executor_options x) { return make_keeper(std::move(x), port_); });
    if (role_ == role::gateway)
      return make_logged_executor(std::move(options), [this](executor_options x) {
        return make_asked_gateway(std::move(x), port_, *clients_);
      });
    const auto made = [this](executor_options x) { return make_stage_executor(std::move(x), port_); };
    const auto watched = [made](executor_options x) {
      return make_watched_executor(std::move(x), made, end_with_device);
    };
    return make_executor_of_one_job(
        [options = std::move(options), watched] { return make_logged_executor(options, watched); }, retired_);
  }

  place_answer look(const place_question& x) const { return look_at_places(x, role_, data_); }
  void retire(std::unique_ptr<executor> x) { retired_.take(std::move(x)); }

private:
  role role_;
  const slot_devices& devices_;
  const nccl_of_slots nccl_;
  std::filesystem::path state_;
  data_port& port_;
  endpoint* const clients_; ///< of a gateway; null: it is none
  const std::vector<std::filesystem::path> data_;
  const std::uint64_t device_bytes_;
  const std::uint32_t cores_; ///< of each slot
  const std::chrono::microseconds naps_;
  fault_injector faults_;
  bool inject_;
  std::optional<loader_log> log_;
  retirement retired_{retire_limit, end_with_device}; ///< last: what is destroyed uses all of the above
};

/// Where the data port listens.
std::string listening_host(const node_options& options) {
  if (!options.listen.host.empty())
    return options.listen.host;
  return options.manager.bundle.empty() ? "127.0.0.1" : address_towards(options.manager.managers);
}

/// Before LibTorch computes anything: afterwards it is too late to bring in CUDA. Throws device_error if GPUs were
/// asked for and cannot be had.
slot_devices devices_for(const node_options& options) {
  if (options.role != role::worker)
    return {};
  auto result =
      open_gpus(options.device, cuda_library_file(), options.trusts_network ? nccl_reach::network : nccl_reach::host);
  if (result.empty())
    return result;
  if (options.slots.value_or(0) > result.size())
    throw device_error("there are " + std::to_string(result.size()) + " GPUs for " + std::to_string(*options.slots) +
                       " slots: leave out --slots");
  result.resize(options.slots.value_or(result.size()));
  for (const auto& x : result)
    if (x.on->facts().computes_as != result.front().on->facts().computes_as)
      throw device_error(result.front().on->facts().place + " and " + x.on->facts().place + " differ (" +
                         result.front().on->facts().computes_as + "; " + x.on->facts().computes_as +
                         "): start a node for each kind, with --device cuda:NUMBERS");
  return result;
}

/// So that no other node takes them for its own as well. Throws std::runtime_error.
std::vector<device_lock> locks_of(const node_options& options, const slot_devices& devices) {
  // These are told how much they may take, or stand for nodes of several machines.
  const bool shares = options.slot_bytes > 0 || options.own_machine;
  std::vector<device_lock> result;
  for (const auto& x : devices)
    result.emplace_back(x.on->facts().unique, x.on->facts().place,
                        shares ? device_lock::kind::shared : device_lock::kind::alone);
  return result;
}

/// Which GPUs, of which; or why none, where one may be missed.
void say_where(const node_options& options, const slot_devices& devices) {
  std::vector<std::string> places;
  for (const auto& x : devices)
    places.push_back(x.on->facts().place);
  if (!places.empty())
    spdlog::info("computes on {}{}", fmt::join(places, ", "), among_visible());
  else if (options.device.what != device_choice::kind::automatic)
    return;
  else if (const auto driver = ask_driver(); driver.is_old)
    spdlog::warn("computes on the processor: {}", driver.problem);
  else if (!among_visible().empty())
    spdlog::info("computes on the processor: {}", driver.problem);
}

/// Of their memory, that a slot may take. Asked once they are taken: when they were opened a node that was killed a
/// moment ago may still have had it.
std::uint64_t device_bytes(const node_options& options, const slot_devices& devices) {
  if (options.slot_bytes > 0)
    return options.slot_bytes;
  auto least = devices.front().on->free_bytes();
  for (const auto& x : devices)
    least = std::min(least, x.on->free_bytes());
  return bytes_for_tensors(least);
}

/// Of one slot. Throws what open_plugin throws.
device_facts facts_for(const node_options& options, const slot_devices& devices) {
  auto result = devices.empty()
                    ? device_facts{"cpu", "cpu", "", processor_facts("cpu"), machine_bytes() / *options.slots, true}
                    : devices.front().on->facts();
  if (!devices.empty())
    result.bytes = device_bytes(options, devices);
  for (const auto& file : options.plugins)
    result.computes_as += plugin_fact(open_plugin(file));
  return result;
}

/// In the order of the slots.
std::vector<watched_gpu> watched_gpus(const slot_devices& devices) {
  std::vector<watched_gpu> result;
  for (const auto& x : devices)
    result.push_back({x.on->facts().place, x.on->facts().unique});
  return result;
}

/// Null: it is no gateway. Throws std::runtime_error.
std::unique_ptr<endpoint> endpoint_for(const node_options& options) {
  if (options.role != role::gateway)
    return nullptr;
  boost::system::error_code bad;
  const auto host =
      boost::asio::ip::make_address(options.http.host == "localhost" ? "127.0.0.1" : options.http.host, bad);
  if (bad)
    throw std::runtime_error("--http needs a numeric address: " + to_string(options.http));
  const bool is_open = options.http_certificate.empty() || options.api_keys.empty();
  if (!host.is_loopback() && is_open)
    throw std::runtime_error("refusing to answer at " + to_string(options.http) +
                             ": beyond loopback it takes --http-certificate, --http-key and --api-keys");
  return std::make_unique<endpoint>(boost::asio::ip::tcp::endpoint{host, options.http.port},
                                    http_identity{options.http_certificate, options.http_key},
                                    options.api_keys.empty() ? api_keys() : api_keys(options.api_keys));
}

/// `clients`: where they are answered; null: nowhere.
hello introduction_of(const node_options& options, const std::string& listens, const data_port& port,
                      const device_facts& facts, const endpoint* clients) {
  hello x;
  x.name = options.name;
  x.pool = options.pool;
  x.role = options.role;
  x.host = !options.advertise.host.empty() ? options.advertise.host
           : is_everywhere(listens)        ? address_towards(options.manager.managers)
                                           : listens;
  x.port = options.advertise.port != 0 ? options.advertise.port : port.port();
  x.slots = *options.slots;
  x.processor = facts.computes_as;
  x.memory = {options.slot_bytes > 0 ? options.slot_bytes : facts.bytes, !facts.host};
  if (!options.own_machine)
    x.machine = this_machine();
  if (clients) {
    x.http = (options.http_certificate.empty() ? "http://" : "https://") +
             to_string(address{is_everywhere(options.http.host) ? x.host : options.http.host, clients->port()});
    spdlog::info("answers at {}", x.http);
  }
  return x;
}

// The cloud's notices, on their way to the instance; nothing if no cloud is asked.
std::unique_ptr<notice_poller> poller_for(const instance_actor& self, const cloud_options& options) {
  if (options.of == cloud::none)
    return nullptr;
  cloud_listener listener;
  listener.notice = [self](std::chrono::milliseconds left, std::string reason) {
    caf::anon_send(self, notice_atom_v, static_cast<std::uint64_t>(left.count()), std::move(reason));
  };
  listener.risk = [self](std::string reason) { caf::anon_send(self, risk_atom_v, std::move(reason)); };
  return std::make_unique<notice_poller>(options, std::move(listener));
}

/// From the manager's first word on a new connection until it hears of this node: by then it has handled what came in
/// while it stood still, ends of connections above all. CAF 0.17 takes a connection that meets an older one of the same
/// node for its alternative, ends the old one, and then has no way back to the node, but reports no loss.
constexpr std::chrono::milliseconds settling{50};

// From the first actor to the last. Returns why the manager refused this instance, or nothing.
std::string serve(const node_options& options, const slot_devices& devices, const device_facts& facts,
                  const std::shared_ptr<black_box_sink>& last_lines, termination& end) {
  std::random_device random;
  // Destroyed in reverse: first the actors end, then the executors they left, then the port.
  const auto listens = listening_host(options);
  auto port = make_data_port(listens, options.listen.port, options.manager.bundle, options.link_bytes_per_s);
  const auto clients = endpoint_for(options);
  executor_pool pool(options, devices, facts, *port, clients.get());
  const gpu_health health(watched_gpus(devices), end_with_device);
  for (const auto& x : health.now())
    if (!x.problem.empty())
      spdlog::info("{}: {}", x.place, x.problem);
  instance_ending ending;
  control_plane plane({.bundle = options.manager.bundle, .settle = settling});
  auto& system = plane.system();
  instance_config wiring;
  wiring.introduction = introduction_of(options, listens, *port, facts, clients.get());
  for (const auto& x : options.manager.managers)
    wiring.managers.push_back({x.host, x.port});
  if (wiring.managers.size() > 1)
    wiring.limits.hurry();
  wiring.seed = std::uint64_t{random()} << 32 | random();
  wiring.source.make = [&](const slot_id& slot, std::function<void(report)> f) {
    return pool.make(slot, std::move(f));
  };
  wiring.source.retire = [&](std::unique_ptr<executor> x) { pool.retire(std::move(x)); };
  wiring.look = [&](const place_question& x) { return pool.look(x); };
  wiring.dialler = plane.middleman();
  wiring.own_warning = [&] { return plane.certificate_problem(); };
  wiring.gpus = [&] { return health.now(); };
  wiring.ages = [first = ages_now(), at = std::chrono::steady_clock::now()] {
    return ages_after(first, std::chrono::steady_clock::now() - at);
  };
  wiring.other_build = [&] { return plane.other_build(); };
  wiring.die = [] { kill(getpid(), SIGKILL); };
  wiring.ended = [&](instance_ending how) {
    ending = std::move(how);
    end.stop();
  };
  auto self = system.spawn(instance, std::move(wiring));
  // A weak pointer: the log outlives the actors.
  last_lines->on_error(
      [to = caf::actor_cast<caf::weak_actor_ptr>(self)](const std::string& what, std::vector<std::string> log) {
        if (auto strong = to.lock())
          caf::anon_send(caf::actor_cast<instance_actor>(strong), report_atom_v, what, std::move(log));
      });
  const auto poller = poller_for(self, options.cloud); // destroyed before the actors
  bool signalled = false;
  const auto on_end = [&] {
    if (clients)
      clients->close_doors();
    auto grace = std::exchange(signalled, true) ? std::chrono::milliseconds(0) : options.grace;
    caf::anon_send(self, notice_atom_v, static_cast<std::uint64_t>(grace.count()), std::string("SIGTERM"));
  };
  end.wait(on_end, [&] {
    plane.read_bundle_again();
    port->read_bundle_again(); // the log was told what is wrong with it
  });
  limit_shutdown(10);
  if (poller && ending.released)
    poller->acknowledge(std::chrono::seconds(2));
  return ending.failure;
}

/// The one asked for, or one that will be unique; with certificates one that they allow.
std::string name_for(const node_options& options) {
  const auto& bundle = options.manager.bundle;
  if (bundle.empty())
    return options.name.empty() ? default_node_name() : options.name;
  const auto who = credentials(bundle).self();
  const auto name = !options.name.empty() ? options.name : who.fleet ? who.name + "-" + default_node_name() : who.name;
  if (const auto problem = problem_of_joining(who, name, options.role == role::keeper); !problem.empty())
    throw std::runtime_error("cannot be " + name + " with the bundle " + bundle.string() + ": " + problem);
  return name;
}

} // namespace

int run_node(const node_options& given) {
  auto options = given;
  options.name = name_for(options);
  keep_memory_for_tensors(); // before there are threads, or a GPU's libraries
  make_libtorch_exact();     // likewise
  const auto box = std::make_shared<black_box>();
  const guardian guard(last_words_of(*box, options.name, options.manager));
  // Until the process ends: a call of NCCL may never return.
  const auto& devices = *new slot_devices(devices_for(options));
  const auto taken = locks_of(options, devices);
  if (!options.slots)
    options.slots = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(devices.size()));
  const auto facts = facts_for(options, devices);
  note_crashes(box);
  termination end;
  const auto last_lines = std::make_shared<black_box_sink>(box);
  log_to_stderr(options.name, options.log, last_lines);
  say_where(options, devices);
  std::string refusal;
  try {
    refusal = serve(options, devices, facts, last_lines, end);
  } catch (const std::exception& e) {
    box->note_end(e.what());
    throw;
  }
  if (!refusal.empty())
    throw std::runtime_error(refusal);
  return 0;
}

} // namespace parcae
