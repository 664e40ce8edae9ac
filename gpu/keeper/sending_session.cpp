#include "gpu/keeper/sending_session.hpp"

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/late_parts.hpp"
#include "protocols/base/crash_stack.hpp"

#include <chrono>
#include <utility>
#include <vector>

namespace parcae {

namespace {

constexpr std::chrono::seconds send_limit{600}; ///< one shard; progress is watched by the conductor

} // namespace

sending_session::sending_session(const executor_options& options, data_port& port, prepare plan,
                                 std::function<void(session_news)> tell) :
    options_(options),
    port_(port), plan_(std::move(plan)), tell_(std::move(tell)), thread_([this] { run(); }) {}

sending_session::~sending_session() {
  {
    const lock held(mutex_);
    cancelled_ = true;
    if (comm_)
      comm_->abort();
    changed_.notify_all();
  }
  thread_.join();
}

void sending_session::send(keeper_effects::send x) {
  const lock held(mutex_);
  work_ = std::move(x);
  changed_.notify_all();
}

void sending_session::run() {
  use_crash_stack();
  try {
    auto made = port_.connect_state(plan_, options_.self, state_limit, cancelled_);
    auto& comm = *made;
    {
      const lock held(mutex_);
      comm_ = std::move(made);
    }
    tell(session_connected{plan_.next});
    if (const auto work = wait_for_work()) {
      send_all(comm, *work);
      tell(session_sent{plan_.next});
    }
  } catch (const killed& x) {
    tell_(x);
  } catch (const unreachable_peer& e) {
    fail(failure::unreachable, e.peer, e.what());
  } catch (const communication_error& e) {
    fail(failure::communication, 0, e.what());
  } catch (const std::exception& e) {
    fail(failure::computation, 0, e.what());
  }
}

std::optional<keeper_effects::send> sending_session::wait_for_work() {
  lock held(mutex_);
  while (!cancelled_ && !work_)
    held.wait(changed_);
  if (cancelled_)
    return std::nullopt;
  return std::exchange(work_, {}); // not kept longer than it is sent: a session may outlive its shards
}

void sending_session::send_all(communicator& comm, const keeper_effects::send& x) {
  for (const bool late : {false, true}) {
    std::uint32_t sent = 0;
    const auto fault_point_here = [&] {
      if (options_.on_fault_point)
        options_.on_fault_point({late ? "late_send" : "transfer_send", plan_.next, x.at.steps, sent});
    };
    fault_point_here();
    // One after the other: the network takes them as fast as it can anyway, and a shard is many packets.
    for (const auto& [move, shard] : x.shards) {
      std::vector<ticket> parts;
      for (std::uint32_t i = 0; i < shard->parts.size(); ++i)
        if (is_late(plan_, false, i) == late)
          parts.push_back(comm.send(move.destination, shard_tag(x.at, move.layer, i), shard->parts[i]));
      for (const auto& part : parts)
        comm.wait(part, send_limit);
      ++sent;
      fault_point_here();
    }
  }
}

void sending_session::fail(failure kind, std::uint32_t peer, const std::string& what) {
  tell(failed{plan_.next, kind, peer, what, {}});
}

void sending_session::tell(session_news x) {
  const lock held(mutex_);
  if (!cancelled_)
    tell_(std::move(x));
}

} // namespace parcae
