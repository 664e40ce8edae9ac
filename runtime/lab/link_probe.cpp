#include "runtime/lab/link_probe.hpp"

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/reduction.hpp"
#include "gpu/device/device.hpp"
#include "protocols/base/median.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <future>
#include <memory>
#include <thread>

namespace parcae {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::seconds patience{30};
constexpr std::size_t largest = std::size_t{64} << 20;
constexpr double large = 1 << 20;
constexpr std::size_t reduced_floats = std::size_t{4} << 20;
constexpr int reductions = 8;
constexpr std::size_t small = 64, medium = std::size_t{64} << 10;
constexpr int messages = 200;
constexpr std::chrono::milliseconds pause{1}; // before a message: as long as a pass of a small model

double cpu_ms(clockid_t which) {
  timespec t{};
  clock_gettime(which, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

/// Two participants of one generation, each with a port of its own.
class pair_of_ends {
public:
  pair_of_ends() {
    prepare plan;
    plan.next = {1};
    plan.token = {1, 1};
    plan.job = {1};
    plan.target.width = 2;
    plan.target.depth = 1;
    for (int i = 0; i < 2; ++i) {
      ports_.push_back(make_data_port("127.0.0.1"));
      plan.target.participants.push_back({{"probe" + std::to_string(i), {1}, 0}, "127.0.0.1", ports_[i]->port()});
    }
    auto other = std::async(std::launch::async, [&] { return connect(plan, 1); });
    ends_.push_back(connect(plan, 0));
    ends_.push_back(other.get());
  }

  /// Runs f(communicator, 0 or 1) on both sides until both are done.
  template <class F>
  void run(F f) {
    auto other = std::async(std::launch::async, [&] { f(*ends_[1], 1); });
    f(*ends_[0], 0);
    other.get();
  }

private:
  std::unique_ptr<communicator> connect(const prepare& plan, std::size_t i) {
    return ports_[i]->connect(plan, plan.target.participants[i].slot, patience, never_);
  }

  std::atomic<bool> never_ = false;
  std::vector<std::unique_ptr<data_port>> ports_;
  std::vector<std::unique_ptr<communicator>> ends_;
};

/// Half of the median time there and back, of messages that are equally long both ways.
double one_way_ms(pair_of_ends& ends, std::size_t bytes, int rounds) {
  std::vector<double> times;
  const tag what{channel::shard, 0, 0};
  ends.run([&](communicator& comm, int side) {
    std::vector<std::byte> out(bytes), in(bytes);
    for (int i = 0; i <= rounds; ++i) {
      const auto began = clock::now();
      const auto arriving = comm.receive(1 - side, what, in);
      if (side == 1)
        comm.wait(arriving, patience);
      comm.wait(comm.send(1 - side, what, out), patience);
      if (side == 0) {
        comm.wait(arriving, patience);
        if (i > 0) // the first touches the memory
          times.push_back(std::chrono::duration<double, std::milli>(clock::now() - began).count());
      }
    }
  });
  return median(times) / 2;
}

struct message_cost {
  double latency_ms;
  double cpu_ms; ///< of sender and receiver, halved
};

/// Medians of messages to a thread that slept for them. Back to back, cores hardly fall asleep, and a message takes
/// half as much.
message_cost cost_of_messages(pair_of_ends& ends, std::size_t bytes) {
  std::vector<double> latency, sending, receiving;
  ends.run([&](communicator& comm, int side) {
    std::vector<std::byte> payload(bytes);
    for (std::uint32_t i = 0; i < messages; ++i) {
      const tag what{channel::activation, 0, i};
      if (side == 0) {
        std::this_thread::sleep_for(pause);
        const auto now = clock::now();
        std::memcpy(payload.data(), &now, sizeof now);
        const double before = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
        comm.wait(comm.send(1, what, payload), patience);
        sending.push_back(cpu_ms(CLOCK_THREAD_CPUTIME_ID) - before);
      } else {
        const double before = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
        comm.wait(comm.receive(0, what, payload), patience);
        receiving.push_back(cpu_ms(CLOCK_THREAD_CPUTIME_ID) - before);
        clock::time_point sent;
        std::memcpy(&sent, payload.data(), sizeof sent);
        latency.push_back(std::chrono::duration<double, std::milli>(clock::now() - sent).count());
      }
    }
  });
  return {median(latency), (median(sending) + median(receiving)) / 2};
}

/// Both sides' processor time, all threads, halved; each sends all its gradients once, with two members of two
/// replicas.
double reduce_ms_per_byte(pair_of_ends& ends) {
  std::vector<std::vector<float>> sums(2, std::vector<float>(reduced_floats));
  const auto processor = make_cpu_device({});
  device_scratch scratch[]{device_scratch(*processor, 4 * reduced_floats),
                           device_scratch(*processor, 4 * reduced_floats)};
  const auto once = [&](std::uint64_t step) {
    ends.run([&](communicator& comm, int side) {
      tree_all_reduce reduction(comm, {0, 1}, static_cast<std::uint32_t>(side), 2, step, scratch[side]);
      reduction.add({std::as_writable_bytes(std::span(sums[side]))});
      reduction.finish();
    });
  };
  once(0);
  const double before = cpu_ms(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 1; i <= reductions; ++i)
    once(static_cast<std::uint64_t>(i));
  return (cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - before) / 2 / reductions / (reduced_floats * sizeof(float));
}

} // namespace

link_measurement measure_link() {
  pair_of_ends ends;
  link_measurement result;
  const auto shortest = cost_of_messages(ends, small), longer = cost_of_messages(ends, medium);
  result.latency_ms = shortest.latency_ms;
  result.message_ms = shortest.cpu_ms;
  result.message_ms_per_byte = std::max(0.0, longer.cpu_ms - shortest.cpu_ms) / (medium - small);
  for (std::size_t bytes = small; bytes <= largest; bytes *= 4)
    result.points.push_back({static_cast<double>(bytes), one_way_ms(ends, bytes, bytes >= (1 << 20) ? 8 : 200)});
  std::vector<double> rates;
  for (const auto& x : result.points)
    if (x.bytes >= large)
      rates.push_back(x.bytes / std::max(1e-6, x.ms - result.points.front().ms));
  result.bytes_per_ms = median(rates);
  result.reduce_ms_per_byte = reduce_ms_per_byte(ends);
  return result;
}

} // namespace parcae
