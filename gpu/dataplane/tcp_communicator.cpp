#include "gpu/dataplane/tcp_communicator.hpp"

#include "gpu/dataplane/operation.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/base/text.hpp"
#include "protocols/trust/tls_session.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/system/error_code.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

namespace parcae {

namespace {

/// The most that one system call moves: bounds how long a connection's mutex is held.
constexpr std::size_t call_bytes = std::size_t{1} << 20;

/// How many calls the I/O thread makes on one connection before it serves another.
constexpr int calls_in_turn = 8;

/// One half of a connection.
struct half {
  explicit half(bool r) : reads(r) {}

  const bool reads;
  parcae::mutex mutex;
  std::deque<operation_ptr> queue GUARDED_BY(mutex);
  std::size_t queued_bytes GUARDED_BY(mutex) = 0;      ///< of payload, at most
  int drivers GUARDED_BY(mutex) = 0;                   ///< threads in wait(), which move bytes themselves
  bool armed GUARDED_BY(mutex) = false;                ///< the I/O thread will move bytes when the socket is ready
  std::optional<std::string> broken GUARDED_BY(mutex); ///< nothing moves any more, and why
};

/// What outlives the generation it is sent in; else a wrong bit is found by what is computed of it.
bool has_checksum(channel x) {
  return x == channel::shard || x == channel::cache;
}

enum class step_result { moved, would_block, idle };

} // namespace

/// The connection to one participant. Bytes are moved under the direction's mutex with calls that do not block: when an
/// operation is posted, by the thread that waits for it, and else by the I/O thread. So a message that fits into the
/// socket's buffers costs no change of thread; see "Decisions" in the README.
class peer_connection : public std::enable_shared_from_this<peer_connection> {
public:
  explicit peer_connection(tcp_peer peer) :
      name_(std::move(peer.name)), background_(peer.socket->socket.get_executor()), tls_(peer.socket->release_tls()),
      file_(peer.socket->socket.release()) {
    int size = 0;
    socklen_t length = sizeof size;
    ::getsockopt(file_, SOL_SOCKET, SO_RCVBUF, &size, &length);
    unread_bytes_ = static_cast<std::size_t>(size) / 4; // the kernel counts its own overhead too
  }

  ~peer_connection() {
    if (background_.is_open())
      background_.release();
    ::close(file_);
  }

  void start(operation_ptr x) {
    auto& d = x->receives ? in_ : out_;
    x->on = this;
    const lock held(d.mutex);
    if (d.broken) {
      fail(*x, *d.broken);
      return;
    }
    d.queued_bytes += x->length;
    d.queue.push_back(std::move(x));
    // With others before it, or another thread at work, nothing can be gained by trying.
    if (d.queue.size() == 1 && !d.armed && d.drivers == 0)
      move_until_blocked(d);
    arm(d);
  }

  /// Moves bytes until x is done or the time is over. The I/O thread keeps out of that half meanwhile: two changes
  /// of thread less, and what was read is in the cache of the thread that wants it.
  void drive(operation& x, std::chrono::steady_clock::time_point deadline) {
    auto& d = x.receives ? in_ : out_;
    lock held(d.mutex);
    ++d.drivers;
    while (x.now == operation::status::pending) {
      if (step(d) == step_result::moved)
        continue;
      auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (x.now != operation::status::pending || left.count() <= 0)
        break;
      held.give_back();
      pollfd ready{file_, static_cast<short>(d.reads ? POLLIN : POLLOUT), 0};
      ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1000)));
      held.take_again();
    }
    --d.drivers;
    arm(d);
  }

  /// Moves what can be moved at once.
  void nudge(const operation& x) {
    auto& d = x.receives ? in_ : out_;
    const lock held(d.mutex);
    move_until_blocked(d);
  }

  /// After it no buffer is touched.
  void close() {
    closed_ = true;
    // Wakes who drives. Not ::close(): that would send a reset if something is unread here, and lose what the peer has
    // yet to read; and the descriptor's number must not be given away while a thread may use it.
    ::shutdown(file_, SHUT_RDWR);
    const lock out(out_.mutex), in(in_.mutex), background(background_mutex_); // who holds two holds them in this order
    break_off(out_, "aborted");
    break_off(in_, "aborted");
    // A peer that found no room here hears of the end only when there is some: what it sends then is answered by a
    // reset.
    std::array<std::byte, 65536> unread;
    while (::recv(file_, unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
    }
    if (background_.is_open())
      background_.release();
  }

  /// The other side will not be heard of any more.
  void give_up(const std::string& why) {
    const lock out(out_.mutex), in(in_.mutex);
    break_off(out_, why);
    break_off(in_, why);
    ::shutdown(file_, SHUT_RDWR); // wakes who drives
  }

  int file() const { return file_; }

private:
  static void fail(operation& x, const std::string& why) {
    x.error = why;
    x.now = operation::status::failed;
  }

  void pop_done(half& d) NEEDS_LOCK(d.mutex) {
    auto& x = *d.queue.front();
    d.queued_bytes -= x.length;
    x.now = operation::status::done;
    d.queue.pop_front();
  }

  step_result step(half& d) NEEDS_LOCK(d.mutex) {
    if (d.broken || d.queue.empty())
      return step_result::idle;
    return d.reads ? read_some(d) : write_some(d);
  }

  void move_until_blocked(half& d) NEEDS_LOCK(d.mutex) {
    for (int i = 0; i < calls_in_turn; ++i)
      if (step(d) != step_result::moved)
        return;
  }

  /// Whether the I/O thread has to go on: always when something is unsent; when more is to be received than surely fits
  /// into the socket's buffer, which would hold the peer up. Less is left to the thread that waits for it.
  bool needs_background(const half& d) const NEEDS_LOCK(d.mutex) {
    return !d.broken && !d.queue.empty() && d.drivers == 0 && (!d.reads || d.queued_bytes > unread_bytes_);
  }

  void arm(half& d) NEEDS_LOCK(d.mutex) {
    if (d.armed || !needs_background(d))
      return;
    const lock held(background_mutex_);
    if (closed_)
      return;
    // Registered only while needed: else every arrival would wake the I/O thread.
    if (users_++ == 0)
      background_.assign(file_);
    d.armed = true;
    watch(d);
  }

  void watch(half& d) NEEDS_LOCK(background_mutex_) {
    background_.async_wait(d.reads ? descriptor::wait_read : descriptor::wait_write,
                           [self = shared_from_this(), &d](const boost::system::error_code& failure) {
                             if (failure != boost::asio::error::operation_aborted)
                               self->ready(d);
                           });
  }

  /// On the I/O thread.
  void ready(half& d) {
    for (int i = 0; i < calls_in_turn; ++i) {
      const lock held(d.mutex); // given back after each call, for the thread that posts
      if (d.drivers > 0 || step(d) != step_result::moved)
        break;
    }
    const lock held(d.mutex), background(background_mutex_);
    if (closed_)
      return;
    if (needs_background(d))
      return watch(d);
    d.armed = false;
    if (--users_ == 0)
      background_.release();
  }

  void break_off(half& d, const std::string& why) NEEDS_LOCK(d.mutex) {
    if (!d.broken)
      d.broken = "connection to " + name_ + ": " + (closed_ ? "aborted" : why); // the shutdown looks like the peer's
    for (auto& x : d.queue)
      fail(*x, *d.broken);
    d.queue.clear();
  }

  /// What to do after a call that moved nothing.
  step_result no_progress(half& d) NEEDS_LOCK(d.mutex) {
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      return step_result::would_block;
    if (errno == EINTR)
      return step_result::moved;
    break_off(d, errno == EPROTO && tls_ ? tls_problem() : std::system_category().message(errno));
    return step_result::idle;
  }

  std::string tls_problem() {
    const lock held(tls_mutex_);
    return tls_->problem();
  }

  /// As sendmsg, without waiting; `all_gone`: nothing of it waits here.
  ssize_t put(std::span<iovec> pieces, bool& all_gone) {
    if (tls_) {
      const lock held(tls_mutex_);
      const auto n = pieces.empty() ? (tls_->flush() ? 0 : -1) : tls_->send(pieces);
      all_gone = !tls_->unsent();
      return n;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    all_gone = true;
    return ::sendmsg(file_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /// As recvmsg, without waiting.
  ssize_t take(std::span<iovec> pieces) {
    if (tls_) {
      const lock held(tls_mutex_);
      return tls_->receive(pieces);
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return ::recvmsg(file_, &message, MSG_DONTWAIT);
  }

  step_result write_some(half& d) NEEDS_LOCK(d.mutex) {
    std::array<iovec, 16> pieces;
    std::size_t count = 0, bytes = 0;
    for (auto& x : d.queue) {
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
    bool all_gone = true; // else TLS has sealed it: it is done once that is sent
    auto n = put(std::span(pieces).first(count), all_gone);
    if (n < 0)
      return no_progress(d);
    auto left = static_cast<std::size_t>(n);
    for (auto x = d.queue.begin(); x != d.queue.end() && left > 0; ++x) {
      auto part = std::min(left, frame_size + (*x)->length - (*x)->moved);
      (*x)->moved += part;
      left -= part;
    }
    while (all_gone && !d.queue.empty() && d.queue.front()->complete())
      pop_done(d);
    return d.queue.empty() ? step_result::idle : step_result::moved;
  }

  step_result read_some(half& d) NEEDS_LOCK(d.mutex) {
    auto& x = *d.queue.front();
    std::array<iovec, 2> pieces;
    std::size_t count = 0;
    auto header_left = frame_size - std::min(x.moved, frame_size);
    if (header_left > 0)
      pieces[count++] = {x.header.data() + x.moved, header_left};
    auto from = x.moved - std::min(x.moved, frame_size);
    if (auto rest = std::min(x.length - from, call_bytes); rest > 0)
      pieces[count++] = {x.payload + from, rest};
    auto n = take(std::span(pieces).first(count));
    if (n < 0)
      return no_progress(d);
    if (n == 0) {
      break_off(d, "closed by the peer");
      return step_result::idle;
    }
    auto got = static_cast<std::size_t>(n);
    if (x.moved == 0)
      x.began = std::chrono::steady_clock::now();
    x.moved += got;
    if (header_left > 0 && x.header_moved())
      if (auto problem = take_header(x)) {
        break_off(d, *problem);
        return step_result::idle;
      }
    if (x.hashing && got > header_left)
      XXH3_64bits_update(x.hashing.get(), x.payload + from, got - header_left);
    if (!x.header_moved() || !x.complete())
      return step_result::moved;
    if (x.hashing && XXH3_64bits_digest(x.hashing.get()) != x.checksum) {
      break_off(d, "checksum of " + describe(x.what, x.length) + " is wrong");
      return step_result::idle;
    }
    pop_done(d);
    return d.queue.empty() ? step_result::idle : step_result::moved;
  }

  /// Compares the header that came with what was expected; says what differs.
  std::optional<std::string> take_header(operation& x) {
    auto came = decode_frame(x.header);
    if (!came)
      return "malformed frame";
    if (came->what != x.what || came->length != x.length)
      return "expected " + describe(x.what, x.length) + ", came " + describe(came->what, came->length);
    if (has_checksum(x.what.kind)) {
      x.checksum = came->checksum;
      x.hashing.reset(XXH3_createState());
      XXH3_64bits_reset_withSeed(x.hashing.get(), seed_of(*came));
    }
    return std::nullopt;
  }

  using descriptor = boost::asio::posix::stream_descriptor;

  const std::string name_;
  mutex background_mutex_; ///< locked after a direction's
  descriptor
      background_ GUARDED_BY(background_mutex_); ///< file_ as the I/O thread knows it; open while a half is armed
  int users_ GUARDED_BY(background_mutex_) = 0;  ///< directions armed
  std::atomic<bool> closed_ = false;
  mutex tls_mutex_;                        ///< locked last: a session does one thing at a time
  const std::unique_ptr<tls_session> tls_; ///< null: plain TCP; used under tls_mutex_
  const int file_;                         ///< owned; open as long as this object lives
  std::size_t unread_bytes_ = 0;           ///< that surely fit into the socket's buffer
  half out_{false};
  half in_{true};
};

namespace {

class tcp_communicator : public communicator {
public:
  tcp_communicator(std::uint32_t self, std::vector<tcp_peer> peers, std::vector<watched_connection>& watched) :
      self_(self), connections_(peers.size()) {
    for (std::size_t i = 0; i < peers.size(); ++i)
      if (peers[i].socket) {
        const auto who = peers[i].socket->peer;
        const auto name = peers[i].name;
        connections_[i] = std::make_shared<peer_connection>(std::move(peers[i]));
        auto* x = connections_[i].get();
        watched.push_back({.owner = connections_[i],
                           .descriptor = [x] { return x->file(); },
                           .close = [x](const std::string& why) { x->give_up(why); },
                           .name = name,
                           .peer = who,
                           .trains = true});
      }
  }

  ~tcp_communicator() override { abort(); }

  std::uint32_t self() const override { return self_; }

  std::uint32_t size() const override { return static_cast<std::uint32_t>(connections_.size()); }

  ticket send(std::uint32_t peer, tag what, const_memory_view x) override {
    // sendmsg takes iovec, which knows no const
    return start(peer, {const_cast<std::byte*>(x.bytes.data()), x.bytes.size()}, x.on, [&](auto part) {
      auto one = std::make_shared<operation>();
      frame header{what, part.size(), 0};
      if (has_checksum(what.kind))
        header.checksum = XXH3_64bits_withSeed(part.data(), part.size(), seed_of(header));
      one->header = encode(header);
      one->what = what;
      return one;
    });
  }

  ticket receive(std::uint32_t peer, tag what, memory_view x) override {
    return start(peer, x.bytes, x.on, [&](auto) {
      auto one = std::make_shared<operation>();
      one->what = what;
      one->receives = true;
      return one;
    });
  }

  void wait(const ticket& t, std::chrono::milliseconds limit) override {
    auto& x = static_cast<operation&>(*t);
    if (x.now == operation::status::pending)
      x.on->drive(x, std::chrono::steady_clock::now() + limit);
    if (x.now == operation::status::pending)
      throw communication_error("no end of " + describe(x.what, x.length) + " within " + text_of_duration(limit));
    if (x.now == operation::status::failed)
      throw communication_error(x.error);
  }

  std::optional<std::chrono::steady_clock::time_point> began(const ticket& t) const override {
    const auto& x = static_cast<const operation&>(*t);
    return x.first ? x.first->began : x.began;
  }

  bool done(const ticket& t) override {
    auto& x = static_cast<operation&>(*t);
    if (x.now == operation::status::pending)
      x.on->nudge(x);
    return x.now != operation::status::pending;
  }

  void abort() noexcept override {
    for (auto& x : connections_)
      if (x)
        x->close();
  }

private:
  /// A message, frame by frame.
  ticket start(std::uint32_t peer, std::span<std::byte> bytes, const device* on, const auto& make) {
    if (on)
      throw std::invalid_argument("memory of " + on->facts().place + " is not what a socket can take");
    operation_ptr first;
    for (;;) {
      const auto part = bytes.first(std::min(bytes.size(), max_frame_bytes));
      bytes = bytes.subspan(part.size());
      const operation_ptr x = make(part);
      x->payload = part.data();
      x->length = part.size();
      x->first = first;
      to(peer).start(x);
      if (bytes.empty())
        return x;
      if (!first)
        first = x;
    }
  }

  peer_connection& to(std::uint32_t peer) {
    if (peer >= connections_.size() || !connections_[peer])
      throw std::invalid_argument("participant " + std::to_string(self_) + " has no connection to participant " +
                                  std::to_string(peer));
    return *connections_[peer];
  }

  std::uint32_t self_;
  std::vector<std::shared_ptr<peer_connection>> connections_; ///< by participant; null: there is none
};

} // namespace

std::unique_ptr<communicator> make_tcp_communicator(std::uint32_t self, std::vector<tcp_peer> peers,
                                                    std::vector<watched_connection>& watched) {
  return std::make_unique<tcp_communicator>(self, std::move(peers), watched);
}

} // namespace parcae
