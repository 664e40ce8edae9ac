// The data plane against what the kernel can do, in one run on loopback, by turns. Prints figures:
//   transfer   one message of n bytes, communicator and bare blocking sockets; ratio of the medians' rates
//   tls        one message of n bytes, communicators with certificates and without, and OpenSSL's own loop on bare
//              blocking sockets
//   ping_pong  round trip of 64 bytes
//   all_reduce time for n floats at D = 2 in tree order, and how long bare sockets take for as many bytes
//   snapshot   rate from send to acknowledgement
// (with --device only: a transfer between memory of that device, against bare sockets and copies to and from pinned
// memory). Fails if one is beyond its bound. Processor time is of the whole process: both ends, all threads.

#include "gpu/dataplane/reduction.hpp"
#include "gpu/dataplane/staged_communicator.hpp"
#include "protocols/trust/credentials.hpp"
#include "tests/bench/bare_sockets.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/support/chosen_device.hpp"

#include <CLI/CLI.hpp>
#include <openssl/ssl.h>

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

using namespace parcae;
using namespace parcae::rig;

namespace {

constexpr double least_rate = 0.9;
constexpr double least_tls_rate = 0.95;   // of OpenSSL's own
constexpr double least_staged_rate = 0.8; // of the slower of socket and copy
constexpr double max_latency = 2;         // of 64 bytes; with a change of thread for each message it was 3

void check_tls(bool good, const char* what) {
  if (!good)
    throw std::runtime_error(what);
}

/// The same in TLS, as OpenSSL does it by itself: a call for each record.
struct bare_tls_pair {
  explicit bare_tls_pair(const std::filesystem::path& bundle) : own(bundle) {
    for (int i : {0, 1}) {
      ends[i].reset(SSL_new(own.context().native_handle()));
      check_tls(ends[i] && SSL_set_fd(ends[i].get(), sockets.ends[i]) == 1, "there is no memory for TLS");
      SSL_clear_mode(ends[i].get(), SSL_MODE_RELEASE_BUFFERS);
      SSL_set_read_ahead(ends[i].get(), 1);
    }
    std::thread accepting([&] { SSL_accept(ends[1].get()); });
    const auto connected = SSL_connect(ends[0].get());
    accepting.join();
    check_tls(connected == 1 && SSL_is_init_finished(ends[1].get()), "no TLS handshake");
  }

  void send(int end, std::span<const std::byte> x) {
    for (std::size_t n = 0; !x.empty(); x = x.subspan(n))
      check_tls(SSL_write_ex(ends[end].get(), x.data(), x.size(), &n) == 1, "TLS sends nothing");
  }

  void receive(int end, std::span<std::byte> x) {
    for (std::size_t n = 0; !x.empty(); x = x.subspan(n))
      check_tls(SSL_read_ex(ends[end].get(), x.data(), x.size(), &n) == 1, "TLS receives nothing");
  }

  struct ssl_free {
    void operator()(SSL* x) const { SSL_free(x); }
  };
  const credentials own;
  bare_pair sockets;
  std::unique_ptr<SSL, ssl_free> ends[2];
};

struct measured {
  std::vector<double> wall_ms;
  double cpu = 0; ///< ms, sum
};

/// Runs the two sides on two threads; wall time is until both are done.
template <class Left, class Right>
void measure(measured& to, Left&& left, Right&& right) {
  std::barrier start(2);
  auto cpu = cpu_ms();
  steady::time_point begin;
  std::thread other([&] {
    start.arrive_and_wait();
    right();
  });
  start.arrive_and_wait();
  begin = steady::now();
  left();
  other.join();
  to.wall_ms.push_back(since_ms(begin));
  to.cpu += cpu_ms() - cpu;
}

using communicators = std::vector<std::unique_ptr<communicator>>;

/// What was given to the compute stream until now is done.
void wait_for(device& on) {
  if (!on.compute().record()->wait(patience))
    throw std::runtime_error("the device is not done");
}

/// One message there, and a byte back: else the copy into the socket's buffer would be measured. on: the device that
/// the message goes from and to.
void there_and_back(measured& to, communicators& ends, const_memory_view out, memory_view in, device* on = nullptr) {
  const tag what{on ? channel::shard : channel::activation, 0, 0};
  std::byte answer{1}, answered{2};
  measure(
      to,
      [&] {
        auto back = ends[0]->receive(1, what, std::span(&answered, 1));
        ends[0]->wait(ends[0]->send(1, what, out), patience);
        ends[0]->wait(back, patience);
      },
      [&] {
        ends[1]->wait(ends[1]->receive(0, what, in), patience);
        if (on)
          wait_for(*on);
        ends[1]->wait(ends[1]->send(0, what, std::span(&answer, 1)), patience);
      });
}

/// The same over bare sockets, of bytes of the host.
void there_and_back(measured& to, auto& bare, std::span<const std::byte> out, std::span<std::byte> in) {
  std::byte answer{1}, answered{2};
  measure(
      to,
      [&] {
        bare.send(0, out);
        bare.receive(0, std::span(&answered, 1));
      },
      [&] {
        bare.receive(1, in);
        bare.send(1, std::span(&answer, 1));
      });
}

double mb_per_s(std::size_t bytes, const std::vector<double>& ms) {
  return static_cast<double>(bytes) / median(ms) / 1e3;
}

void bench_transfer(std::size_t bytes, int repeats, figures& all) {
  cluster c(2);
  auto ends = c.connect_all();
  bare_pair bare;
  std::vector<std::byte> out(bytes, std::byte{1}), in(bytes, std::byte{2});
  measured ours, theirs;
  for (int i = 0; i <= repeats; ++i) {
    there_and_back(ours, ends, out, in);
    there_and_back(theirs, bare, out, in);
    if (i == 0)
      ours = theirs = {}; // warm
  }
  const auto size = std::to_string(bytes >> 20) + " MiB";
  all.note(size + ", MB/s", mb_per_s(bytes, ours.wall_ms));
  all.note(size + ", processor time over that of bare sockets", ours.cpu / theirs.cpu);
  all.at_least("rate over that of bare sockets, " + size, median(theirs.wall_ms) / median(ours.wall_ms), least_rate);
}

/// From memory of the device to other memory of it, by two communicators with a line each.
void bench_staged(device& on, std::size_t bytes, int repeats, figures& all) {
  cluster c(2);
  auto ends = c.connect_all();
  for (auto& x : ends)
    x = make_staged_communicator(std::move(x), on);
  bare_pair bare;
  const auto from = on.allocate(bytes), to = on.allocate(bytes), pinned = on.allocate_pinned(bytes);
  std::vector<std::byte> out(bytes, std::byte{1}), in(bytes, std::byte{2});
  std::memset(pinned.get(), 3, bytes);
  const auto copies = on.make_stream();
  measured ours, theirs;
  std::vector<double> out_ms, in_ms;
  const auto copy = [&](std::vector<double>& ms, void* there, const void* here) {
    const auto began = copies->record_time();
    copies->copy(there, here, bytes);
    const auto ended = copies->record_time();
    if (!ended->wait(patience))
      throw std::runtime_error("a copy is not done");
    ms.push_back(ended->ms_since(*began));
  };
  for (int i = 0; i <= repeats; ++i) {
    copy(in_ms, from.get(), pinned.get());
    copy(out_ms, pinned.get(), from.get());
    there_and_back(ours, ends, const_memory_view(std::span<const std::byte>(from.get(), bytes), &on),
                   memory_view(std::span(to.get(), bytes), &on), &on);
    there_and_back(theirs, bare, out, in);
    if (i == 0) { // warm
      ours = theirs = {};
      out_ms.clear();
      in_ms.clear();
    }
  }
  const auto rate = [&](const std::vector<double>& ms) { return mb_per_s(bytes, ms); };
  all.only_shown("copy to pinned memory, MB/s", rate(out_ms));
  all.only_shown("copy from pinned memory, MB/s", rate(in_ms));
  all.only_shown("bare socket, MB/s", rate(theirs.wall_ms));
  all.only_shown("staged transfer, MB/s", rate(ours.wall_ms));
  all.at_least("staged transfer over the slower of copy and socket",
               rate(ours.wall_ms) / std::min({rate(theirs.wall_ms), rate(out_ms), rate(in_ms)}), least_staged_rate);
}

/// There and back again by two communicators in turn, plain and in TLS, and by OpenSSL alone.
void bench_tls(std::size_t bytes, int repeats, figures& out) {
  const test_authority authority;
  const auto bundle = authority.fleet("node");
  cluster plain(2), sealed(2, bundle);
  bare_tls_pair bare(bundle);
  auto plain_ends = plain.connect_all(), sealed_ends = sealed.connect_all();
  std::vector<std::byte> sent(bytes, std::byte{1}), in(bytes, std::byte{2});
  measured ours, theirs, alone;
  for (int i = 0; i <= repeats; ++i) {
    there_and_back(ours, sealed_ends, sent, in);
    there_and_back(theirs, plain_ends, sent, in);
    there_and_back(alone, bare, sent, in);
    if (i == 0)
      ours = theirs = alone = {}; // warm
  }
  const auto size = std::to_string(bytes >> 20) + " MiB";
  const auto ms = median(ours.wall_ms);
  out.note(size + " in TLS, MB/s", mb_per_s(bytes, ours.wall_ms));
  out.note(size + " in TLS, processor time over plain", ours.cpu / theirs.cpu);
  out.note(size + " in TLS, processor time over OpenSSL's own", ours.cpu / alone.cpu);
  out.only_shown("rate in TLS over plain, " + size, median(theirs.wall_ms) / ms);
  out.at_least("rate in TLS over OpenSSL's own on bare sockets, " + size, median(alone.wall_ms) / ms, least_tls_rate);
}

void bench_ping_pong(figures& out) {
  constexpr int rounds = 20'000;
  cluster c(2);
  auto ends = c.connect_all();
  bare_pair bare;
  measured ours, theirs;
  std::vector<double> times, bare_times;
  std::vector<std::byte> x(64), y(64), z(64), w(64);
  tag what{channel::exchange, 0, 0};
  measure(
      ours,
      [&] {
        for (int i = 0; i < rounds; ++i) {
          auto begin = steady::now();
          auto back = ends[0]->receive(1, what, y);
          ends[0]->send(1, what, x);
          ends[0]->wait(back, patience);
          times.push_back(since_ms(begin) * 1e3);
        }
      },
      [&] {
        for (int i = 0; i < rounds; ++i) {
          ends[1]->wait(ends[1]->receive(0, what, z), patience);
          ends[1]->send(0, what, z);
        }
      });
  measure(
      theirs,
      [&] {
        for (int i = 0; i < rounds; ++i) {
          auto begin = steady::now();
          bare.send(0, x);
          bare.receive(0, y);
          bare_times.push_back(since_ms(begin) * 1e3);
        }
      },
      [&] {
        for (int i = 0; i < rounds; ++i) {
          bare.receive(1, w);
          bare.send(1, w);
        }
      });
  out.note("64 bytes there and back, p50, microseconds", median(times));
  out.note("64 bytes there and back, p99, microseconds", percentile(times, 0.99));
  out.note("64 bytes there and back, bare sockets, p99, microseconds", percentile(bare_times, 0.99));
  out.note("64 bytes there and back, processor time over bare sockets", ours.cpu / theirs.cpu);
  out.at_most("64 bytes there and back over bare sockets, p50", median(times) / median(bare_times), max_latency);
}

void bench_all_reduce(std::size_t floats, std::uint32_t virtual_replicas, int repeats, figures& out) {
  cluster c(2);
  auto ends = c.connect_all();
  bare_pair bare;
  std::vector<std::uint32_t> group{0, 1};
  std::vector<std::vector<float>> sums(2, std::vector<float>(floats, 1));
  const auto processor = make_cpu_device({});
  device_scratch scratch[]{device_scratch(*processor, 4 * floats), device_scratch(*processor, 4 * floats)};
  measured tree, floor;
  auto once_tree = [&](std::uint32_t self) {
    tree_all_reduce reduction(*ends[self], group, self, virtual_replicas, 0, scratch[self]);
    reduction.add({std::as_writable_bytes(std::span(sums[self]))});
    reduction.finish();
  };
  // Half of the buffer goes each way, twice; sending and receiving at once, on two threads per side.
  auto half = floats / 2;
  auto once_bare = [&](int self) {
    auto all = std::as_writable_bytes(std::span(sums[static_cast<std::size_t>(self)]));
    for (int i = 0; i < 2; ++i) {
      std::thread sending([&] { bare.send(self, all.first(4 * half)); });
      bare.receive(self, all.subspan(4 * half, 4 * half));
      sending.join();
    }
  };
  for (int i = 0; i <= repeats; ++i) {
    measure(
        tree, [&] { once_tree(0); }, [&] { once_tree(1); });
    measure(
        floor, [&] { once_bare(0); }, [&] { once_bare(1); });
    if (i == 0)
      tree = floor = {};
  }
  const auto what = "all-reduce of " + std::to_string(4 * floats / 1'000'000) + " MB";
  out.note(what + ", ms", median(tree.wall_ms));
  out.only_shown(what + " over bare sockets that exchange as many bytes, time",
                 median(tree.wall_ms) / median(floor.wall_ms));
  out.note(what + ", processor time over theirs", tree.cpu / floor.cpu);
}

void bench_snapshot(std::size_t bytes, int repeats, figures& out) {
  auto sender = make_data_port("127.0.0.1"), keeper = make_data_port("127.0.0.1");
  keeper->accept_snapshots({1}, secret_key{{5}}, {}, [](const commit_result&, const shard_bytes&) {});
  auto stream = sender->open_snapshot_stream({1}, {{"keeper", {1}, 0}, "127.0.0.1", keeper->port()},
                                             permit_of({{5}}, {"sender", {1}, 0}));
  auto x = std::make_shared<snapshot>();
  x->job = {1};
  for (std::uint32_t layer = 0; layer < 8; ++layer)
    x->shards.push_back(to_send(std::make_shared<const shard_bytes>(
        shard_bytes{layer,
                    {1, {1}},
                    {std::vector<std::byte>(bytes / 24), std::vector<std::byte>(bytes / 24),
                     std::vector<std::byte>(bytes / 24)}})));
  std::vector<double> wall;
  auto cpu = cpu_ms();
  for (int i = 0; i < repeats; ++i) {
    auto begin = steady::now();
    stream->send(x);
    if (!stream->wait_until_idle(patience))
      throw std::runtime_error("the keeper did not acknowledge a snapshot");
    wall.push_back(since_ms(begin));
  }
  const auto what = "snapshot of " + std::to_string(bytes / 1'000'000) + " MB, ";
  out.only_shown(what + "MB/s", mb_per_s(bytes, wall));
  out.note(what + "processor time, ms", (cpu_ms() - cpu) / repeats);
}

} // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::string where;
  CLI::App app{"The data plane against what the kernel can do.", "data_plane_bench"};
  app.add_option("--device", where, "only transfers between memory of it: cpu, or cuda:N");
  CLI11_PARSE(app, argc, argv);
  figures out;
  if (!where.empty()) {
    auto* gpu = open_device(where);
    const auto processor = make_cpu_device({});
    bench_staged(gpu ? *gpu : *processor, 256 << 20, 12, out);
    return out.status();
  }
  for (std::size_t mib : {1, 4, 16, 64, 256})
    bench_transfer(mib << 20, static_cast<int>(std::max<std::size_t>(12, 1024 / mib)), out); // a GiB, or 12 messages
  for (std::size_t mib : {1, 16, 64})
    bench_tls(mib << 20, static_cast<int>(std::max<std::size_t>(12, 1024 / mib)), out);
  bench_ping_pong(out);
  bench_all_reduce(10'000'000, 4, 30, out);
  bench_snapshot(120'000'000, 10, out);
  return out.status();
}
