#include "gpu/dataplane/data_port.hpp"

#include "gpu/dataplane/handshake.hpp"
#include "gpu/dataplane/meeting.hpp"
#include "gpu/dataplane/pass_gate.hpp"
#include "gpu/dataplane/port_side.hpp"
#include "gpu/dataplane/snapshot_stream.hpp"
#include "gpu/dataplane/tcp_communicator.hpp"
#include "protocols/base/as_result.hpp"
#include "protocols/base/back_off.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/line_limit.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/base/text.hpp"
#include "protocols/trust/strangers.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

namespace parcae {

namespace {

using namespace std::chrono_literals;
using boost::asio::awaitable;
using boost::asio::steady_timer;
using boost::asio::ip::tcp;
using boost::system::error_code;
using clock = std::chrono::steady_clock;

constexpr auto parking_limit = 60s; ///< a greeting whose generation is not prepared by then is closed
constexpr std::size_t max_parked = 1024;
constexpr back_off dial_pauses{5ms, 250ms};
constexpr auto cancel_poll = 5ms;

/// Of a name or an address, for listening.
tcp::endpoint place_of(boost::asio::io_context& io, const std::string& host, std::uint16_t port) {
  return *tcp::resolver(io).resolve(host, std::to_string(port), tcp::resolver::passive).begin();
}

class tcp_data_port : public data_port {
public:
  tcp_data_port(const std::string& host, std::uint16_t port, std::filesystem::path bundle,
                std::uint64_t link_bytes_per_s) :
      bundle_(std::move(bundle)) {
    side_.link_bytes_per_s = link_bytes_per_s;
    if (!bundle_.empty())
      side_.own = std::make_shared<credentials>(bundle_);
    try {
      const auto where = place_of(side_.io, host, port);
      if (const auto problem = problem_of_place(where, side_.own != nullptr); !problem.empty())
        throw std::runtime_error("cannot listen for data connections on " + host + ": " + problem);
      listen_on(acceptor_, where);
      port_ = acceptor_.local_endpoint().port();
    } catch (const boost::system::system_error& e) {
      throw std::runtime_error("cannot listen for data connections on " + host + ":" + std::to_string(port) + ": " +
                               problem_of_listening(e.code()));
    }
    start(accept());
    start(watch());
    thread_ = std::thread([this] { run(); });
  }

  ~tcp_data_port() override {
    side_.io.stop();
    thread_.join();
  }

  std::uint16_t port() const override { return port_; }

  std::unique_ptr<communicator> connect(const prepare& x, const slot_id& self, std::chrono::milliseconds limit,
                                        const std::atomic<bool>& cancelled) override {
    const auto number = number_of(x, self);
    std::vector<bool> needed(x.target.participants.size());
    std::fill_n(needed.begin(), std::min<std::size_t>(x.target.ranks(), needed.size()), true);
    needed[number] = false;
    return connect(std::make_shared<meeting>(purpose::generation, x, number, std::move(needed)), limit, cancelled);
  }

  std::unique_ptr<communicator> connect_state(const prepare& x, const slot_id& self, std::chrono::milliseconds limit,
                                              const std::atomic<bool>& cancelled) override {
    return connect_for(purpose::state, x.moves, x, self, limit, cancelled);
  }

  std::unique_ptr<communicator> connect_caches(const prepare& x, const slot_id& self, std::chrono::milliseconds limit,
                                               const std::atomic<bool>& cancelled) override {
    return connect_for(purpose::caches, x.caches, x, self, limit, cancelled);
  }

  std::unique_ptr<pass_gate> accept_passes(const prepare& x, std::uint32_t rank) override {
    return doors_.open({x.job, x.next, rank}, x.token, [this](const std::function<void()>& f) { on_io_thread(f); });
  }

  std::unique_ptr<communicator> connect_passes(const pass_call& x, std::chrono::milliseconds limit,
                                               const std::atomic<bool>& cancelled) override {
    const auto dial = std::make_shared<pass_dial>(x);
    on_io_thread([&] { start(dial_for_passes(side_, dial)); });
    auto result = wait_for(*dial, limit, cancelled);
    on_io_thread([&] { dial->end(); });
    return result ? std::move(result) : throw communication_error(dial->why_not());
  }

  peer_meeting& peers() override { return peers_; }

  std::unique_ptr<snapshot_stream> open_snapshot_stream(job_id job, const participant& keeper,
                                                        const snapshot_permit& permit) override {
    return make_snapshot_stream(side_, job, keeper, permit);
  }

  std::uint64_t accept_snapshots(job_id job, const secret_key& key, snapshot_check check,
                                 std::function<void(const commit_result&, shard_bytes)> on_shard) override {
    std::uint64_t number = 0;
    on_io_thread([&] {
      auto gate = std::make_shared<snapshot_gate>();
      gate->number = number = ++gates_opened_;
      gate->job = job;
      gate->key = key;
      gate->check = std::move(check);
      gate->on_shard = std::move(on_shard);
      if (auto old = std::exchange(gates_[job], std::move(gate)))
        old->close();
    });
    return number;
  }

  void end_snapshots(std::uint64_t number) override {
    on_io_thread([&] {
      const auto i = std::ranges::find_if(gates_, [&](const auto& x) { return x.second->number == number; });
      if (i == gates_.end())
        return;
      i->second->close();
      gates_.erase(i);
    });
  }

  std::string read_bundle_again() override {
    std::string problem;
    on_io_thread([&] {
      try {
        if (!bundle_.empty())
          side_.own = std::make_shared<credentials>(bundle_, side_.own.get());
      } catch (const std::runtime_error& e) {
        problem = e.what();
      }
      if (problem.empty() && side_.own)
        close_those([&](const identity& x) { return side_.own->revoked(x) ? "its certificate is revoked" : ""; });
    });
    return problem;
  }

private:
  void run() {
    use_crash_stack();
    auto work = boost::asio::make_work_guard(side_.io);
    while (!side_.io.stopped()) {
      try {
        side_.io.run();
      } catch (const std::exception& e) {
        spdlog::error("data port {}: {}", port_, e.what());
      }
    }
  }

  /// Runs f on the I/O thread and returns when it has ended.
  template <class Function>
  void on_io_thread(Function&& f) {
    if (std::this_thread::get_id() == thread_.get_id())
      return f();
    std::promise<void> ended;
    boost::asio::post(side_.io, [&] {
      f();
      ended.set_value();
    });
    ended.get_future().wait();
  }

  void start(awaitable<void> x) {
    boost::asio::co_spawn(side_.io, std::move(x), [this](std::exception_ptr failure) {
      try {
        if (failure)
          std::rethrow_exception(failure);
      } catch (const std::exception& e) {
        spdlog::error("data port {}: {}", port_, e.what());
      }
    });
  }

  /// In the log; anybody can cause these lines.
  void note(spdlog::level::level_enum level, const std::string& what) {
    if (const auto left_out = refusals_.admit(clock::now()))
      spdlog::log(level, "data port {}: {}{}", port_, what, *left_out);
  }

  awaitable<void> watch() {
    steady_timer pause(side_.io);
    for (;;) {
      pause.expires_after(look_pause);
      co_await pause.async_wait(as_result);
      side_.connections.look();
      close_those([](const identity& x) { return has_ended(x) ? "its certificate has ended" : ""; });
    }
  }

  void close_those(const objection& to) {
    side_.connections.close_those(to);
    const auto close = [&](const socket_ptr& x) {
      if (!x || !x->peer || x->closed())
        return;
      if (const auto why = to(*x->peer); !why.empty()) {
        note(spdlog::level::warn, "closed the connection of " + x->name() + ": " + why);
        x->close();
      }
    };
    std::ranges::for_each(guests_.all(), close);
    for (auto& [number, guest] : parked_)
      close(guest.socket);
    for (auto& [key, m] : meetings_)
      std::ranges::for_each(m->sockets, close); // who connects finds it closed
  }

  // --- connections that come in

  awaitable<void> accept() {
    co_await guests_.accept(acceptor_, [this](tcp::socket accepted) {
      auto guest = std::make_shared<secure_socket>(std::move(accepted), link_side::accepted, side_.own);
      guests_.add(guest);
      start(receive_guest(std::move(guest)));
    });
  }

  void close_too_old(secure_socket& guest) {
    note(spdlog::level::warn, "closed a connection from " + guest.name() + ": others wait, and it said nothing");
    guest.close();
  }

  /// Until it has said who it is. Returns its greeting; empty: it is closed.
  awaitable<std::optional<greeting>> meet(socket_ptr guest) {
    steady_timer limit(side_.io, stranger_limit);
    const auto waiting = std::make_shared<bool>(true);
    limit.async_wait([guest, waiting](const error_code&) {
      if (std::exchange(*waiting, false))
        guest->close();
    });
    auto problem = co_await guest->secure();
    if (problem.empty())
      problem = problem_of_guest(*guest);
    std::array<std::byte, greeting_size> bytes;
    std::optional<greeting> result;
    if (problem.empty() && !co_await guest->read(bytes))
      problem = "no greeting" + (guest->failure.empty() ? "" : ": " + guest->failure);
    else if (problem.empty() && !(result = decode_greeting(bytes)))
      problem = "malformed greeting";
    const bool in_time = std::exchange(*waiting, false);
    limit.cancel();
    const bool was_there = guests_.remove(*guest);
    if (was_there && !problem.empty())
      note(spdlog::level::warn,
           "closed a connection from " + guest->name() + ": " + (in_time ? problem : "it said nothing in time"));
    if (problem.empty() && !guest->closed())
      co_return result;
    guest->close();
    co_return std::nullopt;
  }

  /// Reads the greeting and leads the guest to where it wants to go.
  awaitable<void> receive_guest(socket_ptr guest) {
    const auto hello = co_await meet(guest);
    if (!hello)
      co_return;
    if (hello->protocol != data_protocol_version)
      co_return refuse(*guest, refusal::protocol);
    give_room(*guest);
    side_.pace(*guest);
    if (hello->what == purpose::snapshot)
      co_return admit_snapshots(std::move(guest), *hello);
    if (hello->what == purpose::passes)
      co_return admit_passes(std::move(guest), *hello);
    if (auto m = meetings_.find({hello->what, hello->job, hello->of, hello->to}); m != meetings_.end())
      co_return welcome(m->second, std::move(guest), *hello);
    if (parked_.size() >= max_parked)
      co_return refuse(*guest, refusal::crowded);
    start(park(std::move(guest), *hello));
  }

  /// Keeps a connection until connect() claims it; drops it if the other end leaves or speaks.
  awaitable<void> park(socket_ptr guest, greeting hello) {
    auto number = next_parked_++;
    parked_.emplace(number, parked_guest{guest, hello});
    steady_timer limit(side_.io, parking_limit);
    limit.async_wait([this, number](const error_code& failure) {
      if (auto x = parked_.find(number); !failure && x != parked_.end())
        x->second.socket->close();
    });
    co_await guest->socket.async_wait(tcp::socket::wait_read, as_result);
    limit.cancel();
    if (parked_.erase(number) == 0)
      co_return; // claimed
    note(spdlog::level::warn, fmt::format("closed a connection from {} that waited for generation {} of job {}",
                                          guest->name(), hello.of.value, hello.job.value));
    guest->close();
  }

  void refuse(secure_socket& guest, refusal why) {
    note(spdlog::level::warn, "refused a connection from " + guest.name() + ": " + render(why));
    guest.write_now(encode(why));
    guest.close();
  }

  void welcome(const meeting_ptr& m, socket_ptr guest, const greeting& hello) {
    // The smaller number dials: anything else is no participant of this generation, or has nothing to say here.
    if (!(hello.token == m->token) || hello.from >= m->key.self || !m->needed[hello.from])
      return refuse(*guest, refusal::token);
    if (!may_be(*guest, m->participants[hello.from].slot.instance))
      return refuse(*guest, refusal::name);
    if (!guest->left() && guest->write_now(encode(refusal::none)))
      m->joined(hello.from, std::move(guest)); // a second one replaces the first, which its dialler has given up
  }

  void admit_snapshots(socket_ptr guest, const greeting& hello) {
    auto gate = gates_.find(hello.job);
    if (gate == gates_.end())
      return refuse(*guest, refusal::unknown);
    if (!(permit_of(gate->second->key, {hello.name, hello.life, hello.from}).token == hello.token))
      return refuse(*guest, refusal::token);
    if (!may_be(*guest, hello.name))
      return refuse(*guest, refusal::name);
    if (!guest->write_now(encode(refusal::none)))
      return;
    side_.watch(guest);
    start(receive_snapshots(std::move(guest), gate->second));
  }

  void admit_passes(socket_ptr guest, const greeting& hello) {
    if (const auto why = doors_.admit(guest, hello); why != refusal::none)
      refuse(*guest, why);
  }

  // --- connect()

  static std::uint32_t number_of(const prepare& x, const slot_id& self) {
    const auto& all = x.target.participants;
    const auto found = std::ranges::find(all, self, &participant::slot);
    if (found == all.end())
      throw communication_error(to_string(self) + " is not a participant of generation " +
                                std::to_string(x.next.value));
    return static_cast<std::uint32_t>(found - all.begin());
  }

  /// With whom there is a move.
  template <class Moves>
  std::unique_ptr<communicator> connect_for(purpose what, const Moves& moves, const prepare& x, const slot_id& self,
                                            std::chrono::milliseconds limit, const std::atomic<bool>& cancelled) {
    const auto number = number_of(x, self);
    std::vector<bool> needed(x.target.participants.size());
    for (const auto& move : moves)
      if (move.source == number || move.destination == number)
        needed.at(move.source == number ? move.destination : move.source) = true;
    return connect(std::make_shared<meeting>(what, x, number, std::move(needed)), limit, cancelled);
  }

  std::unique_ptr<communicator> connect(const meeting_ptr& m, std::chrono::milliseconds limit,
                                        const std::atomic<bool>& cancelled) {
    const auto& all = m->participants;
    on_io_thread([&] { begin(m); });
    auto deadline = clock::now() + limit;
    {
      lock held(m->mutex);
      while (!m->complete && !m->hopeless && !cancelled && clock::now() < deadline)
        held.wait_until(m->changed, std::min<clock::time_point>(deadline, clock::now() + cancel_poll));
    }
    std::vector<tcp_peer> peers;
    std::optional<std::uint32_t> absent;
    on_io_thread([&] {
      absent = end(*m);
      if (!absent && !cancelled)
        for (std::uint32_t i = 0; i < all.size(); ++i)
          peers.push_back(
              {std::move(m->sockets[i]), "participant " + std::to_string(i) + " (" + to_string(all[i].slot) + ")"});
      m->close_all();
    });
    if (cancelled)
      throw communication_error("connecting generation " + std::to_string(m->key.of.value) + " was cancelled");
    if (absent)
      throw unreachable_peer(*absent, to_string(all[*absent].slot) + " at " +
                                          with_port(all[*absent].host, all[*absent].port) + ": " +
                                          m->problems[*absent]);
    std::vector<watched_connection> watched;
    auto result = make_tcp_communicator(m->key.self, std::move(peers), watched);
    on_io_thread([&] {
      for (auto& x : watched)
        side_.connections.add(std::move(x));
    });
    return result;
  }

  void begin(const meeting_ptr& m) {
    meetings_[m->key] = m;
    for (auto guest = parked_.begin(); guest != parked_.end();) {
      auto& [socket, hello] = guest->second;
      if (meeting_key{hello.what, hello.job, hello.of, hello.to} != m->key) {
        ++guest;
        continue;
      }
      error_code ignored;
      socket->socket.cancel(ignored);
      welcome(m, socket, hello);
      guest = parked_.erase(guest);
    }
    for (auto peer = m->key.self + 1; peer < m->sockets.size(); ++peer)
      if (m->needed[peer])
        start(dial(m, peer));
  }

  awaitable<void> dial(meeting_ptr m, std::uint32_t peer) {
    steady_timer pause(side_.io);
    greeting hello{m->key.what, m->key.self, peer, m->key.job, m->key.of, m->token, {}, {}};
    for (unsigned attempt = 1; !m->ended; ++attempt) {
      auto socket = side_.new_socket(link_side::dialled);
      m->dialling[peer] = socket;
      auto result = co_await introduce(*socket, m->participants[peer], hello);
      if (m->ended)
        co_return;
      m->dialling[peer] = nullptr;
      if (result.accepted) {
        side_.pace(*socket);
        co_return m->joined(peer, std::move(socket));
      }
      socket->close();
      m->problems[peer] = result.problem;
      if (result.final)
        co_return m->give_up(peer);
      pause.expires_after(dial_pauses.after(attempt));
      co_await pause.async_wait(as_result);
    }
  }

  /// Ends the meeting; returns who is missing.
  std::optional<std::uint32_t> end(meeting& m) {
    m.ended = true;
    if (auto at = meetings_.find(m.key); at != meetings_.end() && at->second.get() == &m)
      meetings_.erase(at);
    if (auto absent = m.first_hopeless_or_missing())
      return absent; // not those that left because of that one
    for (std::uint32_t i = 0; i < m.sockets.size(); ++i)
      if (m.sockets[i] && (m.sockets[i]->closed() || m.sockets[i]->left())) {
        m.problems[i] = "closed the connection again";
        return i;
      }
    return std::nullopt;
  }

  struct parked_guest {
    socket_ptr socket;
    greeting hello;
  };

  peer_meeting peers_;
  const std::filesystem::path bundle_; ///< empty: plain TCP
  port_side side_;                     ///< first, so that it goes last: the others hold sockets of it
  tcp::acceptor acceptor_{side_.io};
  std::uint16_t port_ = 0;
  strangers<secure_socket> guests_{
      max_strangers,
      {.too_old = [this](const socket_ptr& x) { close_too_old(*x); },
       .none_comes_in = [this](const std::string& why) { note(spdlog::level::err, "cannot accept: " + why); }}};
  std::uint64_t next_parked_ = 0;
  std::map<std::uint64_t, parked_guest> parked_;
  std::map<meeting_key, meeting_ptr> meetings_;
  std::map<job_id, std::shared_ptr<snapshot_gate>> gates_;
  std::uint64_t gates_opened_ = 0;
  pass_doors doors_{side_};
  line_limit refusals_;
  std::thread thread_; ///< the only one that touches the fields above, once it runs
};

} // namespace

std::unique_ptr<data_port> make_data_port(const std::string& host, std::uint16_t port,
                                          const std::filesystem::path& bundle, std::uint64_t link_bytes_per_s) {
  return std::make_unique<tcp_data_port>(host, port, bundle, link_bytes_per_s);
}

} // namespace parcae
