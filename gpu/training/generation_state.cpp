#include "gpu/training/generation_state.hpp"

#include "gpu/data/shared_dataset.hpp"
#include "gpu/dataplane/peer_communicator.hpp"
#include "gpu/dataplane/staged_communicator.hpp"
#include "gpu/training/layer_room.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

namespace {

/// Of connections of caches, which are made behind those of state.
constexpr auto connect_caches_limit = state_limit + connect_limit;
/// Of caches on their way, while nobody answers requests. What is not here by then is computed again.
constexpr std::chrono::seconds caches_limit{10};
constexpr std::chrono::seconds usual_work{1}; ///< of a device, that it was given ahead: three passes

/// The data of the job, which LOAD has brought here before.
std::shared_ptr<const dataset> data_of(const prepare& x, const std::vector<std::filesystem::path>& folders) {
  auto data = shared_dataset(x.specification, folders);
  if (!x.data_digest.empty() && x.data_digest != data->digest())
    throw data_error("the data at " + x.specification.data.where() + " differs from what the job started with");
  return data;
}

} // namespace

generation_state::generation_state(prepare x, const slot_id& self_slot, const tensor_device& place,
                                   host_results& results, bool follows) :
    what(std::move(x)),
    on(place), results_(results), follows_(follows) {
  const auto& all = what.target.participants;
  while (self < all.size() && all[self].slot != self_slot)
    ++self;
}

generation_state::~generation_state() {
  end();
  if (preparation.joinable())
    preparation.join();
  gate.reset();
  mover.reset(); // before the buffers below it go
  comm.reset();  // likewise
}

void generation_state::end() {
  aborted = true;
  const std::lock_guard lock(comm_mutex);
  if (comm)
    comm->abort();
  if (mover)
    mover->abort();
  if (gate)
    gate->close();
  if (caches)
    caches->abort();
}

void generation_state::end_work() {
  if (!on.of().compute().record()->wait(usual_work))
    transport->leave();
  transport->note_end();
}

void generation_state::fault(const executor_options& options, const char* phase, std::uint32_t index) const {
  if (options.on_fault_point)
    options.on_fault_point({phase, what.next, training ? training->at().steps : 0, index});
}

std::optional<failed> generation_state::run_preparation(const executor_options& options, data_port& port,
                                                        layer_store& store, layer_room& room,
                                                        std::function<void()> killed_here) {
  const auto problem = [&](failure kind, const std::string& why, std::uint32_t peer = 0) {
    return failed{what.next, kind, peer, why, {}};
  };
  try {
    fault(options, "prepare");
    if (auto why = problem_of_caches(what); !why.empty())
      return problem(failure::refused, why);
    model = describe(what.specification.model);
    std::shared_ptr<const dataset> data;
    std::vector<at::Tensor> for_sums;
    if (trains())
      data = data_of(what, options.data);
    for (const auto& move : what.moves)
      if (is_rank() && move.destination == self) {
        const auto& into =
            arriving.emplace(move.layer, allocate_layer(model, move.layer, what.specification, on, room)).first->second;
        if (trains() && !follows_)
          for_sums.push_back(room.take(into.parameters.numel()));
      }
    transport.emplace(what, self, options);
    std::unique_ptr<communicator> connected;
    if (is_rank())
      connected = transport->connect(connect(purpose::generation, options, port), model.tied);
    auto of_state = std::make_unique<shard_mover>(
        what, self, on, connect(purpose::state, options, port), options,
        [this, killed_here = std::move(killed_here)](const std::exception_ptr& why) { break_off(why, killed_here); });
    auto of_caches = prepare_caches(options, port);
    {
      const std::lock_guard lock(comm_mutex);
      comm = std::move(connected);
      mover = std::move(of_state);
      caches = std::move(of_caches);
      if (is_rank() && what.specification.serves())
        gate = port.accept_passes(what, self);
      if (aborted)
        return {};
    }
    if (trains()) {
      training = std::make_unique<stage_training>(stage_context{&what, self, &model, &store, &arriving, comm.get(),
                                                                &*transport, std::move(data), on, &results_, &options,
                                                                &aborted});
      training->use(std::move(for_sums));
    }
    return {};
  } catch (const data_error& e) {
    return problem(failure::data, e.what());
  } catch (const unreachable_peer& e) {
    return problem(failure::unreachable, e.what(), e.peer);
  } catch (const communication_error& e) {
    return problem(failure::communication, e.what());
  } catch (const killed&) {
    throw;
  } catch (const std::exception& e) {
    on.note_end(e);
    return problem(failure::computation, e.what());
  }
}

// The step in progress needs what did not come: it ends at its next wait for a peer.
void generation_state::break_off(const std::exception_ptr& why, const std::function<void()>& killed_here) {
  try {
    std::rethrow_exception(why);
  } catch (const killed&) {
    return killed_here();
  } catch (...) {
  }
  const std::lock_guard lock(comm_mutex);
  if (comm)
    comm->abort();
}

std::unique_ptr<communicator> generation_state::connect(purpose why, const executor_options& options, data_port& port) {
  const auto over_sockets = [&] {
    return why == purpose::state ? port.connect_state(what, options.self, state_limit, aborted)
                                 : port.connect(what, options.self, connect_limit, aborted);
  };
  if (on.of().facts().host)
    return over_sockets();
  peer_place place; // slots of this process know of each other before any of them is connected
  if (what.specification.transport != "tcp")
    place = port.peers().enter(why, what, options.self, on.of());
  auto connected = make_staged_communicator(over_sockets(), on.of());
  if (!place)
    return connected;
  auto result = make_peer_communicator(std::move(connected), std::move(place), port.peers());
  if (why == purpose::generation) // the others of a transfer may have nothing for this one, and come when they like
    transport->note_peers(result->copies());
  return result;
}

/// Null: it has nothing to do with that.
std::unique_ptr<cache_exchange> generation_state::prepare_caches(const executor_options& options, data_port& port) {
  const bool any =
      std::ranges::any_of(what.caches, [&](const cache_move& x) { return x.source == self || x.destination == self; });
  if (!any)
    return nullptr;
  auto over = port.connect_caches(what, options.self, connect_caches_limit, aborted);
  if (!on.of().facts().host)
    over = make_staged_communicator(std::move(over), on.of());
  return std::make_unique<cache_exchange>(what, self, std::move(over), on,
                                          [this, &options](std::uint32_t n) { fault(options, "cache_send", n); });
}

void generation_state::finish_caches() {
  if (!caches)
    return;
  caches->finish(caches_limit);
  std::unique_ptr<cache_exchange> over;
  const std::lock_guard lock(comm_mutex);
  over = std::move(caches);
}

std::weak_ptr<state_feeds> generation_state::warm(const std::function<void(feed_outcome)>& tells) {
  preparation.join();
  const job_generation of{what.job, what.next};
  const auto is_followed = [=](std::uint64_t bytes, double ms) { tells({of, bytes, ms}); };
  const auto fails = [=, this](const std::exception_ptr& why) {
    const auto problem = [&](failure kind, const std::exception& e) {
      tells({of, 0, 0, failed{of.number, kind, 0, e.what(), {}}});
    };
    try {
      std::rethrow_exception(why);
    } catch (const communication_error& e) {
      problem(failure::communication, e);
    } catch (const std::exception& e) {
      problem(failure::computation, e);
    } catch (const killed&) { // break_off has ended all
    }
  };
  mover->warm(model, arriving, {is_followed, fails});
  return mover->feeds();
}

void generation_state::keep_followed(layer_store& store) {
  const auto all = mover ? mover->end_following() : std::map<std::uint32_t, version>();
  if (!all.empty() && !on.of().compute().record()->wait(usual_work))
    return; // it may not have applied all
  for (const auto& [layer, at] : all) {
    auto x = arriving.extract(layer);
    x.mapped().at = at;
    store.insert_or_assign(layer, std::move(x.mapped()));
  }
}

generation_state::transfer_outcome generation_state::run_transfer(layer_store& store, const version& at) {
  // What failed is over: nothing may be read from shards that are freed, and the peers need not wait for more.
  const auto problem = [&](failure kind, const std::exception& e) {
    end();
    keep_whole(store);
    return transfer_outcome{{}, failed{what.next, kind, 0, e.what(), {}}};
  };
  try {
    for (auto& [layer, state] : arriving)
      state.at = at;
    mover->begin(store, arriving, at);
    const auto early = mover->wait_early();
    if (is_rank()) {
      complete_stage(store, at);
    } else {
      mover->allow_late();
      mover->wait_sent();
    }
    finish_caches();
    return {early};
  } catch (const communication_error& e) {
    return problem(failure::communication, e);
  } catch (const std::exception& e) {
    on.note_end(e);
    return problem(failure::refused, e);
  }
}

void generation_state::take_over(std::shared_ptr<generation_state> before) {
  if (!before)
    return;
  before->end();
  std::unique_ptr<communicator> gone; // which could transmit from and to its buffers
  {
    const std::lock_guard lock(before->comm_mutex);
    gone = std::move(before->comm);
  }
  gone.reset();
  if (training && before->training)
    training->use(before->training->take_buffers());
}

void generation_state::ask_to_stop(bool snapshot) const {
  if (service)
    return service->request_stop();
  if (training && snapshot)
    training->request_snapshot();
  if (training)
    training->request_stop();
}

void generation_state::drop_gradients() const {
  if (training)
    training->drop_gradients();
}

void generation_state::trace(std::uint32_t steps) const {
  if (training)
    training->parts().trace(steps);
}

generation_state::early_end generation_state::end_of(const std::exception_ptr& why) {
  if (gate)
    gate->close();
  try {
    std::rethrow_exception(why);
  } catch (const generation_aborted&) {
    return {};
  } catch (const communication_error& e) {
    return aborted ? early_end{} : early_end{failure::communication, e.what()};
  } catch (const data_error& e) { // in a forward pass: what is held is whole
    return {dynamic_cast<const sample_error*>(&e) ? failure::sample : failure::data, e.what()};
  } catch (const not_finite& e) {
    return {failure::not_finite, e.what()};
  } catch (const std::exception& e) {
    on.note_end(e);
    return {failure::computation, e.what()};
  }
}

stage_service::hooks generation_state::hooks_of_service(const executor_options& options) {
  const auto check = [this] {
    if (aborted)
      throw generation_aborted{};
  };
  return {.on_host = [this, check](const at::Tensor& x) { return results_.bring(x, check); },
          .check = check,
          .before_pass =
              [this, &options](std::uint64_t number) {
                if (options.on_fault_point)
                  options.on_fault_point({"forward", what.next, number, 0});
              }};
}

void generation_state::become_whole(layer_store& store) {
  mover->wait_late();
  for (auto& [layer, state] : std::exchange(arriving, {}))
    store.insert_or_assign(layer, std::move(state));
}

void generation_state::keep_whole(layer_store& store) {
  for (auto x = arriving.begin(); x != arriving.end();)
    if (mover->is_whole(x->first)) {
      store.insert_or_assign(x->first, std::move(x->second));
      x = arriving.erase(x);
    } else {
      ++x;
    }
  std::unique_ptr<shard_mover> gone; // which copies into the rest until it is destroyed, if a device does that
  {
    const std::lock_guard lock(comm_mutex);
    gone = std::move(mover);
  }
  gone.reset();
  arriving.clear();
}

void generation_state::complete_stage(layer_store& store, const version& at) const {
  for (const auto layer : lacking_layers(what, self, inventory_of(store), at)) {
    if (at != version{})
      throw std::runtime_error("layer " + std::to_string(layer) + " is needed at version " + to_string(at) +
                               " and neither held nor sent");
    store.insert_or_assign(layer, seed_layer(model, layer, what.specification, on));
  }
}

} // namespace parcae
