#include "gpu/dataplane/snapshot_stream.hpp"

#include "gpu/dataplane/handshake.hpp"
#include "protocols/base/locks.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
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

constexpr auto as_result = boost::asio::as_tuple(boost::asio::use_awaitable);
constexpr auto first_back_off = 20ms, last_back_off = 1000ms;

/// Other connections of the I/O thread are served at least once in so many bytes.
constexpr std::size_t turn_bytes = std::size_t{1} << 20;

struct hash_state {
  XXH3_state_t* state = XXH3_createState();

  hash_state() = default;
  hash_state(const hash_state&) = delete;
  hash_state& operator=(const hash_state&) = delete;
  ~hash_state() { XXH3_freeState(state); }
};

/// Hash of the header itself, so that the checksum covers it too.
std::uint64_t seed_of(snapshot_frame x) {
  x.checksum = 0;
  auto bytes = encode(x);
  return XXH3_64bits(bytes.data(), bytes.size());
}

} // namespace

// --- receiving

void snapshot_gate::close() {
  open = false;
  error_code ignored;
  for (auto& stream : streams)
    if (auto socket = stream.lock())
      socket->close(ignored);
  streams.clear();
}

awaitable<void> receive_snapshots(socket_ptr socket, std::shared_ptr<snapshot_gate> gate) {
  std::erase_if(gate->streams, [](const auto& x) { return x.expired(); });
  gate->streams.push_back(socket);
  const auto note = [&, name = remote_name(*socket)](const std::string& what) {
    if (const auto left_out = gate->problems.admit(std::chrono::steady_clock::now()))
      spdlog::warn("snapshot stream from {}: {}{}", name, what, *left_out);
  };
  error_code failure;
  std::size_t moved = 0;
  hash_state hash;
  while (gate->open) {
    std::array<std::byte, snapshot_frame_size> header;
    std::tie(failure, moved) = co_await boost::asio::async_read(*socket, boost::asio::buffer(header), as_result);
    if (failure)
      break;
    auto frame = decode_snapshot_frame(header);
    if (!frame) {
      note("malformed frame");
      break;
    }
    if (const auto problem = gate->check ? gate->check(frame->layer, frame->at, frame->sizes) : std::string();
        !problem.empty()) {
      note(problem);
      break;
    }
    XXH3_64bits_reset_withSeed(hash.state, seed_of(*frame));
    shard_bytes shard{frame->layer, frame->at, {}};
    for (auto size : frame->sizes) {
      auto& part = shard.parts.emplace_back();
      part.reserve(size); // the kernel gives memory for what is touched only
      for (std::size_t at = 0; at < size && !failure; at += moved) {
        if (at == part.size())
          part.resize(std::min(size, at + turn_bytes));
        std::tie(failure, moved) =
            co_await socket->async_read_some(boost::asio::buffer(part.data() + at, part.size() - at), as_result);
        XXH3_64bits_update(hash.state, part.data() + at, moved);
      }
    }
    if (failure || !gate->open)
      break;
    if (XXH3_64bits_digest(hash.state) != frame->checksum) {
      note("checksum of layer " + std::to_string(frame->layer) + " is wrong");
      break;
    }
    gate->on_shard(frame->result, std::move(shard));
    if (frame->remaining > 0)
      continue;
    auto acknowledgement = encode_acknowledgement(frame->sequence);
    std::tie(failure, moved) =
        co_await boost::asio::async_write(*socket, boost::asio::buffer(acknowledgement), as_result);
    if (failure)
      break;
  }
  socket->close(failure);
}

// --- sending

namespace {

struct outgoing_snapshot {
  std::uint64_t sequence;
  std::shared_ptr<const snapshot> what;
  bool started = false; ///< some of it was written to the present connection
};

/// State of one stream, shared by its handle and its coroutines, which run on the I/O thread.
struct stream_core : std::enable_shared_from_this<stream_core> {
  stream_core(boost::asio::io_context& context, job_id j, participant k, const snapshot_pass& p) :
      io(context), job(j), keeper(std::move(k)), pass(p), news(context) {}

  boost::asio::io_context& io;
  job_id job;
  participant keeper;
  snapshot_pass pass;

  parcae::mutex mutex;
  std::deque<outgoing_snapshot> unacked GUARDED_BY(mutex); ///< oldest first, at most two
  std::condition_variable drained;                         ///< unacked is empty
  std::uint64_t next_sequence GUARDED_BY(mutex) = 1;
  bool running GUARDED_BY(mutex) = false;   ///< run() is under way; it ends when nothing is to be sent
  bool connected GUARDED_BY(mutex) = false; ///< the keeper has accepted the present connection

  // Of the I/O thread:
  steady_timer news;                                   ///< cancelled when there may be something new to do
  socket_ptr socket;                                   ///< the present connection
  bool closed = false;                                 ///< the handle is gone
  std::chrono::milliseconds back_off = first_back_off; ///< before the next attempt; of the I/O thread, too

  void close() {
    closed = true;
    news.cancel();
    error_code ignored;
    if (socket)
      socket->close(ignored);
  }

  bool nothing_left() {
    const lock held(mutex);
    return unacked.empty();
  }

  /// The oldest snapshot of which nothing was written to this connection, or null.
  std::shared_ptr<const snapshot> next_to_write(std::uint64_t& sequence) {
    const lock held(mutex);
    for (auto& x : unacked)
      if (!x.started) {
        x.started = true;
        sequence = x.sequence;
        return x.what;
      }
    return nullptr;
  }

  void acknowledged(std::uint64_t sequence) {
    const lock held(mutex);
    std::erase_if(unacked, [&](const auto& x) { return x.sequence <= sequence; });
    if (unacked.empty())
      drained.notify_all();
  }

  void restart() {
    const lock held(mutex);
    connected = true;
    for (auto& x : unacked)
      x.started = false;
  }

  void disconnected() {
    const lock held(mutex);
    connected = false;
  }
};
using core_ptr = std::shared_ptr<stream_core>;

awaitable<void> read_acknowledgements(core_ptr core, socket_ptr socket) {
  std::array<std::byte, acknowledgement_size> bytes;
  for (;;) {
    auto [failure, moved] = co_await boost::asio::async_read(*socket, boost::asio::buffer(bytes), as_result);
    auto sequence = failure ? std::nullopt : decode_acknowledgement(bytes);
    if (!sequence)
      break;
    core->acknowledged(*sequence);
    core->back_off = first_back_off;
    core->news.cancel();
  }
  error_code ignored;
  socket->close(ignored); // the writer fails, or finds it closed
  if (core->socket == socket)
    core->disconnected();
  core->news.cancel();
}

awaitable<bool> write_shard(stream_core& core, tcp::socket& socket, snapshot_frame frame, const shard_bytes& shard) {
  hash_state hash;
  XXH3_64bits_reset_withSeed(hash.state, seed_of(frame));
  for (const auto& part : shard.parts)
    for (std::size_t at = 0; at < part.size(); at += turn_bytes) {
      XXH3_64bits_update(hash.state, part.data() + at, std::min(part.size() - at, turn_bytes));
      co_await boost::asio::post(core.io, boost::asio::use_awaitable); // let others have their turn
    }
  frame.checksum = XXH3_64bits_digest(hash.state);
  auto header = encode(frame);
  std::vector<boost::asio::const_buffer> buffers{boost::asio::buffer(header)};
  for (const auto& part : shard.parts)
    buffers.push_back(boost::asio::buffer(part));
  auto piece = [](const error_code& failure, std::size_t) { return failure ? 0 : turn_bytes; };
  auto [failure, moved] = co_await boost::asio::async_write(socket, buffers, piece, as_result);
  co_return !failure;
}

/// Writes what there is until nothing waits for an acknowledgement, or the connection breaks.
awaitable<void> write_snapshots(core_ptr core, socket_ptr socket) {
  while (!core->closed && socket->is_open() && !core->nothing_left()) {
    std::uint64_t sequence = 0;
    auto what = core->next_to_write(sequence);
    if (!what) {
      core->news.expires_after(std::chrono::hours(1)); // cancelled by an acknowledgement, a new snapshot, or the end
      co_await core->news.async_wait(as_result);
      continue;
    }
    auto left = static_cast<std::uint32_t>(what->shards.size());
    for (const auto& shard : what->shards) {
      snapshot_frame frame{sequence, --left, shard.layer, shard.at, {}, what->result, 0};
      for (const auto& part : shard.parts)
        frame.sizes.push_back(part.size());
      auto written = co_await write_shard(*core, *socket, std::move(frame), shard);
      if (!written)
        co_return;
    }
  }
}

/// Longer each time, until something is acknowledged.
awaitable<void> pause(stream_core& core) {
  const auto end = std::chrono::steady_clock::now() + core.back_off;
  while (!core.closed && std::chrono::steady_clock::now() < end) { // news is no reason to try again earlier
    core.news.expires_at(end);
    co_await core.news.async_wait(as_result);
  }
  core.back_off = std::min<std::chrono::milliseconds>(2 * core.back_off, last_back_off);
}

awaitable<void> run(core_ptr core) {
  greeting hello{purpose::snapshot, core->pass.index, 0, core->job, {}, core->pass.token, core->pass.life};
  bool connected = false;
  while (!core->closed) {
    {
      const lock held(core->mutex);
      if (core->unacked.empty()) {
        core->running = false;
        co_return;
      }
    }
    if (!core->socket || !core->socket->is_open()) {
      if (std::exchange(connected, false)) // it broke, or the keeper did not want what was sent
        co_await pause(*core);
      core->socket = std::make_shared<tcp::socket>(core->io);
      auto socket = core->socket;
      auto result = co_await introduce(*socket, core->keeper.host, core->keeper.port, hello);
      if (!result.accepted) {
        error_code ignored;
        socket->close(ignored);
        spdlog::debug("snapshots to keeper {}: {}", to_string(core->keeper.slot), result.problem);
        co_await pause(*core);
        continue;
      }
      connected = true;
      core->restart();
      boost::asio::co_spawn(core->io, read_acknowledgements(core, socket), boost::asio::detached);
    }
    co_await write_snapshots(core, core->socket);
  }
}

class tcp_snapshot_stream : public snapshot_stream {
public:
  explicit tcp_snapshot_stream(core_ptr core) : core_(std::move(core)) {}

  ~tcp_snapshot_stream() override {
    boost::asio::post(core_->io, [core = core_] { core->close(); });
  }

  void send(std::shared_ptr<const snapshot> x) override {
    if (x->shards.empty())
      return;
    const lock held(core_->mutex);
    auto& waiting = core_->unacked;
    // One that is on its way is finished: else a slow link would never get any snapshot through.
    if (waiting.size() == 2)
      waiting.erase(waiting[0].started && !waiting[1].started ? waiting.begin() + 1 : waiting.begin());
    waiting.push_back({core_->next_sequence++, std::move(x)});
    boost::asio::post(core_->io, [core = core_, start = !core_->running] {
      if (start)
        boost::asio::co_spawn(core->io, run(core), boost::asio::detached);
      else
        core->news.cancel();
    });
    core_->running = true;
  }

  bool busy() const override {
    const lock held(core_->mutex);
    return core_->connected && !core_->unacked.empty();
  }

  bool wait_until_idle(std::chrono::milliseconds limit) override {
    const auto end = std::chrono::steady_clock::now() + limit;
    lock held(core_->mutex);
    while (!core_->unacked.empty() && std::chrono::steady_clock::now() < end)
      held.wait_until(core_->drained, end);
    return core_->unacked.empty();
  }

private:
  core_ptr core_;
};

} // namespace

std::unique_ptr<snapshot_stream> make_snapshot_stream(boost::asio::io_context& io, job_id job, participant keeper,
                                                      const snapshot_pass& pass) {
  return std::make_unique<tcp_snapshot_stream>(std::make_shared<stream_core>(io, job, std::move(keeper), pass));
}

} // namespace parcae
