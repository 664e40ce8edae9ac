#include "gpu/training/generation_state.hpp"

#include "gpu/data/shared_dataset.hpp"
#include "gpu/dataplane/peer_communicator.hpp"
#include "gpu/dataplane/staged_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

namespace {

constexpr std::chrono::hours transfer_limit{1}; ///< the conductor's limit is shorter; see peer_limit
constexpr std::chrono::seconds usual_work{1};   ///< of a device, that it was given ahead: three passes

/// The data of the job, which LOAD has brought here before.
std::shared_ptr<const dataset> data_of(const prepare& x, const std::vector<std::filesystem::path>& folders) {
  auto data = shared_dataset(x.specification, folders);
  if (!x.data_digest.empty() && x.data_digest != data->digest())
    throw data_error("the data at " + x.specification.data.where() + " differs from what the job started with");
  return data;
}

} // namespace

generation_state::generation_state(prepare x, const slot_id& self_slot, const tensor_device& place,
                                   host_results& results) :
    what(std::move(x)),
    on(place), results_(results) {
  const auto& all = what.target.participants;
  while (self < all.size() && all[self].slot != self_slot)
    ++self;
}

generation_state::~generation_state() {
  end();
  if (preparation.joinable())
    preparation.join();
  comm.reset(); // before the buffers below it go
}

void generation_state::end() {
  aborted = true;
  const std::lock_guard lock(comm_mutex);
  if (comm)
    comm->abort();
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
                                                        layer_store& store, layer_room& room) {
  const auto problem = [&](failure kind, const std::string& why, std::uint32_t peer = 0) {
    return failed{what.next, kind, peer, why, {}};
  };
  try {
    fault(options, "prepare");
    model = describe(what.specification.model);
    std::shared_ptr<const dataset> data;
    if (is_rank()) {
      data = data_of(what, options.data);
      for (const auto& move : what.moves)
        if (move.destination == self)
          arriving.emplace(move.layer, allocate_layer(model, move.layer, what.specification, on, room));
    }
    transport.emplace(what, self, options);
    auto connected = transport->connect(connect(options, port), model.tied);
    {
      const std::lock_guard lock(comm_mutex);
      comm = std::move(connected);
      if (aborted)
        return {};
    }
    if (is_rank())
      training = std::make_unique<stage_training>(stage_context{&what, self, &model, &store, comm.get(), &*transport,
                                                                std::move(data), on, &results_, &options, &aborted});
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
    return problem(failure::computation, e.what());
  }
}

std::unique_ptr<communicator> generation_state::connect(const executor_options& options, data_port& port) {
  if (on.of().facts().host)
    return port.connect(what, options.self, connect_limit, aborted);
  peer_place place; // slots of this process know of each other before any of them is connected
  if (what.specification.transport != "tcp")
    place = port.peers().enter(what, options.self, on.of());
  auto connected = make_staged_communicator(port.connect(what, options.self, connect_limit, aborted), on.of());
  if (!place)
    return connected;
  auto result = make_peer_communicator(std::move(connected), std::move(place), port.peers());
  transport->note_peers(result->copies());
  return result;
}

generation_state::transfer_outcome generation_state::run_transfer(const executor_options& options, layer_store& store,
                                                                  const version& at) {
  // What failed is over: nothing may be read from shards that are freed, and the peers need not wait for more.
  const auto problem = [&](failure kind, const std::exception& e) {
    end();
    return transfer_outcome{0, failed{what.next, kind, 0, e.what(), {}}};
  };
  try {
    const auto received = move_shards(options, store, at);
    if (is_rank())
      complete_stage(store, at);
    return {received};
  } catch (const communication_error& e) {
    return problem(failure::communication, e);
  } catch (const std::exception& e) {
    return problem(failure::refused, e);
  }
}

struct generation_state::arrival {
  const shard_move* move;
  std::vector<ticket> parts;
};

std::uint64_t generation_state::move_shards(const executor_options& options, layer_store& store, const version& at) {
  auto arrivals = expect_shards(at);
  const auto departures = send_shards(options, store, at);
  const auto received = take_shards(options, store, at, arrivals);
  for (const auto& [ticket, tensor] : departures)
    comm->wait(ticket, transfer_limit);
  return received;
}

std::vector<generation_state::arrival> generation_state::expect_shards(const version& at) {
  std::vector<arrival> arrivals;
  for (const auto& move : what.moves) {
    if (move.destination != self)
      continue;
    auto parts = arriving.at(move.layer).parts();
    auto& x = arrivals.emplace_back(arrival{&move, {}});
    for (std::size_t i = 0; i < parts.size(); ++i)
      x.parts.push_back(comm->receive(move.source, shard_tag(at, move.layer, i), on.memory_of(parts[i])));
  }
  return arrivals;
}

std::vector<std::pair<ticket, at::Tensor>> generation_state::send_shards(const executor_options& options,
                                                                         layer_store& store, const version& at) {
  std::vector<std::pair<ticket, at::Tensor>> departures;
  std::uint32_t sent = 0;
  for (const auto& move : what.moves) {
    if (move.source != self)
      continue;
    const auto held = store.find(move.layer);
    if (held == store.end() || held->second.at != at)
      throw std::runtime_error("layer " + std::to_string(move.layer) + " is not held at version " + to_string(at));
    auto parts = held->second.parts();
    for (std::size_t i = 0; i < parts.size(); ++i)
      departures.emplace_back(comm->send(move.destination, shard_tag(at, move.layer, i), on.memory_of(parts[i])),
                              parts[i]);
    fault(options, "transfer_send", ++sent);
  }
  return departures;
}

std::uint64_t generation_state::take_shards(const executor_options& options, layer_store& store, const version& at,
                                            std::vector<arrival>& arrivals) {
  std::uint64_t received = 0;
  std::uint32_t arrived = 0;
  for (auto& x : arrivals) {
    for (auto& part : x.parts)
      comm->wait(part, transfer_limit);
    for (const auto& part : arriving.at(x.move->layer).parts())
      received += part.nbytes();
    auto state = arriving.extract(x.move->layer);
    state.mapped().at = at;
    store.insert_or_assign(x.move->layer, std::move(state.mapped()));
    fault(options, "transfer_receive", ++arrived);
  }
  return received;
}

void generation_state::complete_stage(layer_store& store, const version& at) const {
  for (auto layer = training->first_layer(); layer < training->last_layer(); ++layer) {
    const auto held = store.find(layer);
    if (held != store.end() && held->second.at == at)
      continue;
    if (at != version{})
      throw std::runtime_error("layer " + std::to_string(layer) + " is needed at version " + to_string(at) +
                               " and neither held nor sent");
    store.insert_or_assign(layer, seed_layer(model, layer, what.specification, on));
  }
}

} // namespace parcae
