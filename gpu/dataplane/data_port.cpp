#include "gpu/dataplane/data_port.hpp"

#include "gpu/dataplane/handshake.hpp"
#include "gpu/dataplane/snapshot_stream.hpp"
#include "gpu/dataplane/tcp_communicator.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/line_limit.hpp"
#include "protocols/base/locks.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

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
using socket_ptr = std::shared_ptr<tcp::socket>;
using clock = std::chrono::steady_clock;

constexpr auto as_result = boost::asio::as_tuple(boost::asio::use_awaitable);

constexpr auto greeting_limit = 5s; ///< a connection that has not said who it is by then is closed
constexpr auto parking_limit = 60s; ///< a greeting whose generation is not prepared by then is closed
constexpr std::size_t most_parked = 1024;
constexpr std::size_t most_guests = 256; ///< connections that have not said who they are
constexpr auto first_back_off = 5ms, last_back_off = 250ms;
constexpr auto cancel_poll = 5ms;

/// Which connect() a greeting is for.
struct meeting_key {
  job_id job;
  generation of;
  std::uint32_t self = 0; ///< the participant here

  friend auto operator<=>(const meeting_key&, const meeting_key&) = default;
};

/// One connect() under way. Fields above the mutex belong to the I/O thread.
struct meeting {
  meeting_key key;
  data_token token;
  std::vector<participant> participants;
  std::vector<socket_ptr> sockets;   ///< connected, by participant; null while missing
  std::vector<socket_ptr> dialling;  ///< by participant, so that the end of the meeting can close them
  std::vector<std::string> problems; ///< last known, by participant
  bool ended = false;

  parcae::mutex mutex;
  std::condition_variable changed;
  bool complete GUARDED_BY(mutex) = false;                 ///< all sockets are there
  std::optional<std::uint32_t> hopeless GUARDED_BY(mutex); ///< this participant refuses for good

  bool missing(std::uint32_t peer) const { return peer != key.self && !sockets[peer]; }

  std::optional<std::uint32_t> first_missing() const {
    for (std::uint32_t i = 0; i < sockets.size(); ++i)
      if (missing(i))
        return i;
    return std::nullopt;
  }

  std::optional<std::uint32_t> first_hopeless_or_missing() {
    const lock held(mutex);
    return hopeless ? hopeless : first_missing();
  }

  void joined(std::uint32_t peer, socket_ptr socket) {
    sockets[peer] = std::move(socket);
    const lock held(mutex);
    complete = !first_missing();
    changed.notify_all();
  }

  void give_up(std::uint32_t peer) {
    const lock held(mutex);
    hopeless = peer;
    changed.notify_all();
  }
};
using meeting_ptr = std::shared_ptr<meeting>;

void close_socket(tcp::socket& x) {
  error_code ignored;
  x.close(ignored);
}

/// Whether the other end has left, as far as is known here. Nothing is read.
bool is_closed(tcp::socket& x) {
  char one;
  auto n = ::recv(x.native_handle(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

class tcp_data_port : public data_port {
public:
  tcp_data_port(const std::string& host, std::uint16_t port) : acceptor_(io_) {
    try {
      tcp::endpoint where(boost::asio::ip::make_address(host), port);
      acceptor_.open(where.protocol());
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      size_buffers(acceptor_); // inherited by what it accepts
      acceptor_.bind(where);
      acceptor_.listen();
      port_ = acceptor_.local_endpoint().port();
    } catch (const boost::system::system_error& e) {
      throw std::runtime_error("cannot listen for data connections on " + host + ":" + std::to_string(port) + ": " +
                               e.code().message());
    }
    start(accept());
    thread_ = std::thread([this] { run(); });
  }

  ~tcp_data_port() override {
    io_.stop();
    thread_.join();
  }

  std::uint16_t port() const override { return port_; }

  std::unique_ptr<communicator> connect(const prepare& x, const slot_id& self, std::chrono::milliseconds limit,
                                        const std::atomic<bool>& cancelled) override {
    const auto& all = x.target.participants;
    auto found = std::find_if(all.begin(), all.end(), [&](const participant& p) { return p.slot == self; });
    if (found == all.end())
      throw communication_error(to_string(self) + " is not a participant of generation " +
                                std::to_string(x.next.value));
    auto m = std::make_shared<meeting>();
    m->key = {x.job, x.next, static_cast<std::uint32_t>(found - all.begin())};
    m->token = x.token;
    m->participants = all;
    m->sockets.resize(all.size());
    m->dialling.resize(all.size());
    m->problems.resize(all.size(), "did not connect");
    {
      const lock held(m->mutex);
      m->complete = all.size() == 1;
    }
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
          peers.push_back({i == m->key.self ? tcp::socket(io_) : std::move(*m->sockets[i]),
                           "participant " + std::to_string(i) + " (" + to_string(all[i].slot) + ")"});
      for (auto& socket : m->sockets)
        if (socket)
          close_socket(*socket);
    });
    if (cancelled)
      throw communication_error("connecting generation " + std::to_string(x.next.value) + " was cancelled");
    if (absent)
      throw unreachable_peer(*absent, to_string(all[*absent].slot) + " at " + all[*absent].host + ":" +
                                          std::to_string(all[*absent].port) + ": " + m->problems[*absent]);
    return make_tcp_communicator(m->key.self, std::move(peers));
  }

  std::unique_ptr<snapshot_stream> open_snapshot_stream(job_id job, const participant& keeper,
                                                        const snapshot_pass& pass) override {
    return make_snapshot_stream(io_, job, keeper, pass);
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

private:
  void run() {
    use_crash_stack();
    auto work = boost::asio::make_work_guard(io_);
    while (!io_.stopped()) {
      try {
        io_.run();
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
    boost::asio::post(io_, [&] {
      f();
      ended.set_value();
    });
    ended.get_future().wait();
  }

  void start(awaitable<void> x) {
    boost::asio::co_spawn(io_, std::move(x), [this](std::exception_ptr failure) {
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
    if (const auto left_out = strangers_.admit(clock::now()))
      spdlog::log(level, "data port {}: {}{}", port_, what, *left_out);
  }

  // --- connections that come in

  awaitable<void> accept() {
    for (;;) {
      auto socket = std::make_shared<tcp::socket>(io_);
      auto [failure] = co_await acceptor_.async_accept(*socket, as_result);
      if (failure) {
        note(spdlog::level::err, "cannot accept: " + failure.message());
        steady_timer pause(io_, 100ms); // out of descriptors, most likely
        co_await pause.async_wait(as_result);
      } else if (guests_ >= most_guests) {
        refuse(*socket, refusal::crowded);
      } else {
        error_code ignored;
        socket->set_option(tcp::no_delay(true), ignored);
        start(receive_guest(std::move(socket)));
      }
    }
  }

  /// Reads the greeting and leads the guest to where it wants to go.
  awaitable<void> receive_guest(socket_ptr socket) {
    ++guests_;
    std::array<std::byte, greeting_size> bytes;
    steady_timer limit(io_, greeting_limit);
    auto done = std::make_shared<bool>(false);
    limit.async_wait([socket, done](const error_code&) {
      if (!*done)
        close_socket(*socket);
    });
    auto name = remote_name(*socket);
    auto [failure, moved] = co_await boost::asio::async_read(*socket, boost::asio::buffer(bytes), as_result);
    *done = true;
    limit.cancel();
    --guests_;
    if (failure) {
      note(spdlog::level::warn, fmt::format("closed a connection from {} after {} bytes of greeting: {}", name, moved,
                                            socket->is_open() ? failure.message() : "too slow"));
      co_return;
    }
    auto hello = decode_greeting(bytes);
    if (!hello) {
      note(spdlog::level::warn, "closed a connection from " + name + ": malformed greeting");
      co_return;
    }
    if (hello->protocol != data_protocol_version)
      co_return refuse(*socket, refusal::protocol);
    if (hello->what == purpose::snapshot)
      co_return admit_snapshots(std::move(socket), *hello);
    if (auto m = meetings_.find({hello->job, hello->of, hello->to}); m != meetings_.end())
      co_return welcome(m->second, std::move(socket), *hello);
    if (parked_.size() >= most_parked)
      co_return refuse(*socket, refusal::crowded);
    start(park(std::move(socket), *hello));
  }

  /// Keeps a connection until connect() claims it; drops it if the other end leaves or speaks.
  awaitable<void> park(socket_ptr socket, greeting hello) {
    auto number = next_parked_++;
    parked_.emplace(number, parked_guest{socket, hello});
    steady_timer limit(io_, parking_limit);
    limit.async_wait([this, number](const error_code& failure) {
      if (auto guest = parked_.find(number); !failure && guest != parked_.end())
        close_socket(*guest->second.socket);
    });
    auto name = remote_name(*socket);
    co_await socket->async_wait(tcp::socket::wait_read, as_result);
    limit.cancel();
    if (parked_.erase(number) == 0)
      co_return; // claimed
    note(spdlog::level::warn, fmt::format("closed a connection from {} that waited for generation {} of job {}", name,
                                          hello.of.value, hello.job.value));
    close_socket(*socket);
  }

  void refuse(tcp::socket& socket, refusal why) {
    note(spdlog::level::warn, "refused a connection from " + remote_name(socket) + ": " + render(why));
    error_code ignored;
    boost::asio::write(socket, boost::asio::buffer(encode(why)), ignored); // fits into the fresh socket's buffer
    close_socket(socket);
  }

  bool accept_greeting(tcp::socket& socket) {
    error_code failure;
    boost::asio::write(socket, boost::asio::buffer(encode(refusal::none)), failure);
    return !failure;
  }

  void welcome(const meeting_ptr& m, socket_ptr socket, const greeting& hello) {
    // The smaller number dials: anything else is no participant of this generation.
    if (!(hello.token == m->token) || hello.from >= m->key.self)
      return refuse(*socket, refusal::token);
    if (!is_closed(*socket) && accept_greeting(*socket))
      m->joined(hello.from, std::move(socket)); // a second one replaces the first, which its dialler has given up
  }

  void admit_snapshots(socket_ptr socket, const greeting& hello) {
    auto gate = gates_.find(hello.job);
    if (gate == gates_.end())
      return refuse(*socket, refusal::unknown);
    if (!(pass_of(gate->second->key, hello.life, hello.from).token == hello.token))
      return refuse(*socket, refusal::token);
    if (accept_greeting(*socket))
      start(receive_snapshots(std::move(socket), gate->second));
  }

  // --- connect()

  void begin(const meeting_ptr& m) {
    meetings_[m->key] = m;
    for (auto guest = parked_.begin(); guest != parked_.end();) {
      auto& [socket, hello] = guest->second;
      if (meeting_key{hello.job, hello.of, hello.to} != m->key) {
        ++guest;
        continue;
      }
      error_code ignored;
      socket->cancel(ignored);
      welcome(m, socket, hello);
      guest = parked_.erase(guest);
    }
    for (auto peer = m->key.self + 1; peer < m->sockets.size(); ++peer)
      start(dial(m, peer));
  }

  awaitable<void> dial(meeting_ptr m, std::uint32_t peer) {
    steady_timer pause(io_);
    greeting hello{purpose::generation, m->key.self, peer, m->key.job, m->key.of, m->token, {}};
    for (auto back_off = first_back_off; !m->ended; back_off = std::min(2 * back_off, last_back_off)) {
      auto socket = std::make_shared<tcp::socket>(io_);
      m->dialling[peer] = socket;
      auto& to = m->participants[peer];
      auto result = co_await introduce(*socket, to.host, to.port, hello);
      if (m->ended)
        co_return;
      m->dialling[peer] = nullptr;
      if (result.accepted)
        co_return m->joined(peer, std::move(socket));
      m->problems[peer] = result.problem;
      if (result.final)
        co_return m->give_up(peer);
      pause.expires_after(back_off);
      co_await pause.async_wait(as_result);
    }
  }

  /// Ends the meeting; returns who is missing.
  std::optional<std::uint32_t> end(meeting& m) {
    m.ended = true;
    if (auto at = meetings_.find(m.key); at != meetings_.end() && at->second.get() == &m)
      meetings_.erase(at);
    for (auto& socket : m.dialling)
      if (socket)
        close_socket(*socket);
    if (auto absent = m.first_hopeless_or_missing())
      return absent; // not who left because of that one
    for (std::uint32_t i = 0; i < m.sockets.size(); ++i)
      if (m.sockets[i] && is_closed(*m.sockets[i])) {
        m.problems[i] = "closed the connection again";
        return i;
      }
    return std::nullopt;
  }

  struct parked_guest {
    socket_ptr socket;
    greeting hello;
  };

  boost::asio::io_context io_{1}; ///< first, so that it goes last: the others hold sockets of it
  tcp::acceptor acceptor_;
  std::uint16_t port_ = 0;
  std::size_t guests_ = 0; ///< connections whose greeting is being read
  std::uint64_t next_parked_ = 0;
  std::map<std::uint64_t, parked_guest> parked_;
  std::map<meeting_key, meeting_ptr> meetings_;
  std::map<job_id, std::shared_ptr<snapshot_gate>> gates_;
  std::uint64_t gates_opened_ = 0;
  line_limit strangers_;
  std::thread thread_; ///< the only one that touches the fields above, once it runs
};

} // namespace

std::unique_ptr<data_port> make_data_port(const std::string& host, std::uint16_t port) {
  return std::make_unique<tcp_data_port>(host, port);
}

} // namespace parcae
