#include "gpu/tcp_communicator.hpp"

#include "gpu/frames.hpp"

#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>

#include <sys/socket.h>
#include <sys/uio.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace parcae {

namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

/// At most so much in one system call: bounds how long a connection's mutex is held.
constexpr std::size_t call_bytes = std::size_t{1} << 20;

/// The I/O thread serves another connection after so many calls on one.
constexpr int calls_in_turn = 8;

std::string describe(const tag& x, std::uint64_t length) {
  return "kind " + std::to_string(static_cast<unsigned>(x.kind)) + " step " + std::to_string(x.step) + " index " +
         std::to_string(x.index) + " with " + std::to_string(length) + " bytes";
}

/// Where the waiting thread sleeps. Lock order: a direction's mutex, then this.
struct waiting_room {
  std::mutex mutex;
  std::condition_variable changed;
};

struct hash_state_deleter {
  void operator()(XXH3_state_t* x) const { XXH3_freeState(x); }
};

std::uint64_t seed_of(frame x) {
  x.checksum = 0;
  auto bytes = encode(x);
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct operation : transmission {
  enum class status { pending, done, failed };

  tag what{};
  std::array<std::byte, frame_size> header;
  std::byte* payload = nullptr;
  std::size_t length = 0;                                    ///< of the payload; unknown before the header if `grows`
  std::size_t moved = 0;                                     ///< bytes of header and payload written or read so far
  std::vector<std::byte>* grows = nullptr;                   ///< receive_any: resized to what comes
  std::size_t most = 0;                                      ///< receive_any: upper bound of `length`
  std::uint64_t checksum = 0;                                ///< shards: as the sender says
  std::unique_ptr<XXH3_state_t, hash_state_deleter> hashing; ///< shards, receiving
  std::atomic<bool> awaited = false;
  std::string error; ///< written before `now` becomes failed
  std::atomic<status> now = status::pending;

  bool header_moved() const { return moved >= frame_size; }
  bool complete() const { return moved == frame_size + length; }
};
using operation_ptr = std::shared_ptr<operation>;

void finish(operation& x, operation::status result, waiting_room& room) {
  x.now = result;
  if (x.awaited) {
    { std::lock_guard lock(room.mutex); }
    room.changed.notify_all();
  }
}

/// One direction of a connection.
struct direction {
  std::mutex mutex;
  std::deque<operation_ptr> queue;
  bool armed = false;                ///< the I/O thread will look when the socket is ready
  std::optional<std::string> broken; ///< nothing moves any more, and why
};

enum class step_result { moved, would_block, idle };

/// The connection to one participant. Any thread moves bytes under the direction's mutex, with calls that do not
/// block; the I/O thread goes on when the socket is ready. So a message that fits into the socket's buffer costs no
/// change of thread.
class connection : public std::enable_shared_from_this<connection> {
public:
  connection(tcp_peer peer, waiting_room& room) :
      socket_(std::move(peer.socket)), file_(socket_.native_handle()), name_(std::move(peer.name)), room_(&room) {}

  void send(operation_ptr x) { start(out_, std::move(x), &connection::write_some, tcp::socket::wait_write); }

  void receive(operation_ptr x) { start(in_, std::move(x), &connection::read_some, tcp::socket::wait_read); }

  /// After it no buffer is touched and the waiting room is not entered.
  void close() {
    std::scoped_lock lock(out_.mutex, in_.mutex, socket_mutex_);
    if (!socket_.is_open())
      return;
    // Not only close(): that would send a reset if something is unread here, and lose what the peer has yet to read.
    ::shutdown(file_, SHUT_RDWR);
    error_code ignored;
    socket_.close(ignored);
    break_off(out_, "aborted");
    break_off(in_, "aborted");
  }

private:
  using step_function = step_result (connection::*)();

  void start(direction& d, operation_ptr x, step_function step, tcp::socket::wait_type readiness) {
    std::lock_guard lock(d.mutex);
    if (d.broken) {
      x->error = *d.broken;
      finish(*x, operation::status::failed, *room_);
      return;
    }
    d.queue.push_back(std::move(x));
    // With others before it, or the I/O thread on its way, nothing can be gained by trying.
    if (d.queue.size() > 1 || d.armed)
      return;
    for (int i = 0; i < calls_in_turn; ++i)
      if ((this->*step)() != step_result::moved)
        break;
    arm(d, step, readiness);
  }

  void arm(direction& d, step_function step, tcp::socket::wait_type readiness) {
    if (d.queue.empty() || d.armed)
      return;
    std::lock_guard lock(socket_mutex_);
    d.armed = true;
    socket_.async_wait(readiness, [self = shared_from_this(), &d, step, readiness](const error_code& failure) {
      if (failure != boost::asio::error::operation_aborted)
        self->ready(d, step, readiness);
    });
  }

  void ready(direction& d, step_function step, tcp::socket::wait_type readiness) {
    for (int i = 0; i < calls_in_turn; ++i) {
      std::lock_guard lock(d.mutex); // given back after each call, for the thread that posts
      if (d.broken || (this->*step)() != step_result::moved)
        break;
    }
    std::lock_guard lock(d.mutex);
    d.armed = false;
    arm(d, step, readiness);
  }

  void break_off(direction& d, const std::string& why) {
    if (!d.broken)
      d.broken = "connection to " + name_ + ": " + why;
    for (auto& x : d.queue) {
      x->error = *d.broken;
      finish(*x, operation::status::failed, *room_);
    }
    d.queue.clear();
  }

  /// What to do after a call that moved nothing.
  step_result no_progress(direction& d) {
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      return step_result::would_block;
    if (errno == EINTR)
      return step_result::moved;
    break_off(d, std::system_category().message(errno));
    return step_result::idle;
  }

  step_result write_some() {
    std::array<iovec, 16> pieces;
    std::size_t count = 0, bytes = 0;
    for (auto& x : out_.queue) {
      if (count + 2 > pieces.size() || bytes >= call_bytes)
        break;
      if (!x->header_moved()) {
        pieces[count++] = {x->header.data() + x->moved, frame_size - x->moved};
        bytes += frame_size - x->moved;
      }
      auto from = x->moved - std::min(x->moved, frame_size);
      if (auto rest = std::min(x->length - from, call_bytes); rest > 0) {
        pieces[count++] = {x->payload + from, rest};
        bytes += rest;
        if (rest < x->length - from)
          break;
      }
    }
    if (count == 0)
      return step_result::idle;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    auto n = ::sendmsg(file_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
      return no_progress(out_);
    auto left = static_cast<std::size_t>(n);
    while (!out_.queue.empty()) {
      auto& x = *out_.queue.front();
      auto part = std::min(left, frame_size + x.length - x.moved);
      x.moved += part;
      left -= part;
      if (!x.complete())
        break;
      finish(x, operation::status::done, *room_);
      out_.queue.pop_front();
    }
    return out_.queue.empty() ? step_result::idle : step_result::moved;
  }

  step_result read_some() {
    if (in_.queue.empty())
      return step_result::idle;
    auto& x = *in_.queue.front();
    std::array<iovec, 2> pieces;
    std::size_t count = 0;
    auto header_left = frame_size - std::min(x.moved, frame_size);
    if (header_left > 0)
      pieces[count++] = {x.header.data() + x.moved, header_left};
    auto from = x.moved - std::min(x.moved, frame_size);
    // A length that is not known is 0 here, so that only the header is read.
    if (auto rest = std::min(x.length - from, call_bytes); rest > 0)
      pieces[count++] = {x.payload + from, rest};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    auto n = ::recvmsg(file_, &message, MSG_DONTWAIT);
    if (n < 0)
      return no_progress(in_);
    if (n == 0) {
      break_off(in_, "closed by the peer");
      return step_result::idle;
    }
    auto got = static_cast<std::size_t>(n);
    x.moved += got;
    if (header_left > 0 && x.header_moved())
      if (auto problem = take_header(x)) {
        break_off(in_, *problem);
        return step_result::idle;
      }
    if (x.hashing && got > header_left)
      XXH3_64bits_update(x.hashing.get(), x.payload + from, got - header_left);
    if (!x.header_moved() || !x.complete())
      return step_result::moved;
    if (x.hashing && XXH3_64bits_digest(x.hashing.get()) != x.checksum) {
      break_off(in_, "checksum of " + describe(x.what, x.length) + " is wrong");
      return step_result::idle;
    }
    finish(x, operation::status::done, *room_);
    in_.queue.pop_front();
    return in_.queue.empty() ? step_result::idle : step_result::moved;
  }

  /// Compares the header that came with what was expected; says what differs.
  std::optional<std::string> take_header(operation& x) {
    auto came = decode_frame(x.header);
    if (!came)
      return "malformed frame";
    auto length_fits = x.grows ? came->length <= x.most : came->length == x.length;
    if (came->what != x.what || !length_fits)
      return "expected " + describe(x.what, x.grows ? x.most : x.length) + (x.grows ? " at most" : "") + ", came " +
             describe(came->what, came->length);
    if (x.grows) {
      x.grows->resize(came->length);
      x.payload = x.grows->data();
      x.length = came->length;
    }
    if (x.what.kind == channel::shard) {
      x.checksum = came->checksum;
      x.hashing.reset(XXH3_createState());
      XXH3_64bits_reset_withSeed(x.hashing.get(), seed_of(*came));
    }
    return std::nullopt;
  }

  std::mutex socket_mutex_; ///< guards socket_, which is only used to wait for readiness; locked last
  tcp::socket socket_;
  int file_; ///< the socket's descriptor; open while a direction's mutex is held and it is not broken
  std::string name_;
  waiting_room* room_;
  direction out_;
  direction in_;
};

class tcp_communicator : public communicator {
public:
  tcp_communicator(std::uint32_t self, std::vector<tcp_peer> peers) : self_(self), connections_(peers.size()) {
    for (std::size_t i = 0; i < peers.size(); ++i)
      if (i != self)
        connections_[i] = std::make_shared<connection>(std::move(peers[i]), room_);
  }

  ~tcp_communicator() override { abort(); }

  std::uint32_t self() const override { return self_; }

  std::uint32_t size() const override { return static_cast<std::uint32_t>(connections_.size()); }

  ticket send(std::uint32_t peer, tag what, std::span<const std::byte> bytes) override {
    auto x = std::make_shared<operation>();
    frame header{what, bytes.size(), 0};
    if (what.kind == channel::shard)
      header.checksum = XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed_of(header));
    x->what = what;
    x->header = encode(header);
    x->payload = const_cast<std::byte*>(bytes.data()); // sendmsg takes iovec, which knows no const
    x->length = bytes.size();
    to(peer).send(x);
    return x;
  }

  ticket receive(std::uint32_t peer, tag what, std::span<std::byte> bytes) override {
    auto x = std::make_shared<operation>();
    x->what = what;
    x->payload = bytes.data();
    x->length = bytes.size();
    to(peer).receive(x);
    return x;
  }

  ticket receive_any(std::uint32_t peer, tag what, std::vector<std::byte>* bytes, std::size_t most) override {
    auto x = std::make_shared<operation>();
    x->what = what;
    x->grows = bytes;
    x->most = most;
    to(peer).receive(x);
    return x;
  }

  void wait(const ticket& t, std::chrono::milliseconds limit) override {
    auto& x = static_cast<operation&>(*t);
    if (x.now == operation::status::pending) {
      std::unique_lock lock(room_.mutex);
      x.awaited = true;
      if (!room_.changed.wait_for(lock, limit, [&] { return x.now != operation::status::pending; }))
        throw communication_error("no end of " + describe(x.what, x.grows ? x.most : x.length) + " within " +
                                  std::to_string(limit.count()) + " ms");
    }
    if (x.now == operation::status::failed)
      throw communication_error(x.error);
  }

  bool done(const ticket& t) override { return static_cast<operation&>(*t).now != operation::status::pending; }

  void abort() noexcept override {
    for (auto& x : connections_)
      if (x)
        x->close();
  }

private:
  connection& to(std::uint32_t peer) {
    if (peer >= connections_.size() || peer == self_)
      throw std::invalid_argument("participant " + std::to_string(self_) + " has no connection to participant " +
                                  std::to_string(peer));
    return *connections_[peer];
  }

  std::uint32_t self_;
  waiting_room room_;
  std::vector<std::shared_ptr<connection>> connections_; ///< by participant; null for oneself
};

} // namespace

std::unique_ptr<communicator> make_tcp_communicator(std::uint32_t self, std::vector<tcp_peer> peers) {
  return std::make_unique<tcp_communicator>(self, std::move(peers));
}

} // namespace parcae
