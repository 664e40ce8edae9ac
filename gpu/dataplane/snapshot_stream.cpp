#include "gpu/dataplane/snapshot_stream.hpp"

#include "gpu/dataplane/handshake.hpp"
#include "protocols/base/as_result.hpp"
#include "protocols/base/back_off.hpp"
#include "protocols/base/locks.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

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
using boost::system::error_code;

constexpr back_off pauses{20ms, 1000ms};
constexpr auto dial_limit = 5s; ///< until the keeper has said yes or no

/// A snapshot for a keeper that is not reached keeps the next one from being made for this long, which then replaces
/// it.
constexpr auto hope = 2s;

/// After how many bytes of one connection the I/O thread serves others.
constexpr std::size_t turn_bytes = std::size_t{1} << 20;

/// Of a snapshot that shares the link with training: at a time.
constexpr std::size_t shared_piece = std::size_t{128} << 10;

/// It lets training go first for as long as this number of pieces takes at its rate: where steps do little but send, it
/// gets a ninth of its share.
constexpr double max_patience = 8;

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
  for (auto& stream : streams)
    if (auto socket = stream.lock())
      socket->close();
  streams.clear();
}

awaitable<void> receive_snapshots(socket_ptr socket, std::shared_ptr<snapshot_gate> gate) {
  std::erase_if(gate->streams, [](const auto& x) { return x.expired(); });
  gate->streams.push_back(socket);
  const auto note = [&, name = socket->name()](const std::string& what) {
    if (const auto left_out = gate->problems.admit(std::chrono::steady_clock::now()))
      spdlog::warn("snapshot stream from {}: {}{}", name, what, *left_out);
  };
  hash_state hash;
  while (gate->open) {
    std::array<std::byte, snapshot_frame_size> header;
    if (!co_await socket->read(header))
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
    bool whole = true;
    for (auto size : frame->sizes) {
      auto& part = shard.parts.emplace_back();
      part.reserve(size); // the kernel gives memory for what is touched only
      for (std::size_t at = 0, moved = 0; at < size && whole; at += moved) {
        if (at == part.size())
          part.resize(std::min(size, at + turn_bytes));
        moved = co_await socket->read_some(std::span(part).subspan(at));
        XXH3_64bits_update(hash.state, part.data() + at, moved);
        whole = moved > 0;
      }
    }
    if (!whole || !gate->open)
      break;
    if (XXH3_64bits_digest(hash.state) != frame->checksum) {
      note("checksum of layer " + std::to_string(frame->layer) + " is wrong");
      break;
    }
    gate->on_shard(frame->result, std::move(shard));
    if (frame->remaining > 0)
      continue;
    auto acknowledgement = encode_acknowledgement(frame->sequence);
    if (!co_await socket->write(acknowledgement))
      break;
  }
  socket->close();
}

// --- sending

namespace {

struct outgoing_snapshot {
  std::uint64_t sequence;
  std::shared_ptr<const snapshot> what;
  std::chrono::steady_clock::time_point since; ///< it was given
  bool started = false;                        ///< some of it was written to the present connection
};

/// State of one stream, shared by its handle and its coroutines, which run on the I/O thread.
struct stream_core : std::enable_shared_from_this<stream_core> {
  stream_core(port_side& s, job_id j, participant k, const snapshot_permit& p) :
      side(s), job(j), keeper(std::move(k)), permit(p), news(s.io) {}

  port_side& side;
  job_id job;
  participant keeper;
  snapshot_permit permit;

  parcae::mutex mutex;
  std::deque<outgoing_snapshot> unacked GUARDED_BY(mutex); ///< oldest first, at most two
  std::condition_variable drained;                         ///< unacked is empty
  std::uint64_t next_sequence GUARDED_BY(mutex) = 1;
  bool running GUARDED_BY(mutex) = false;   ///< run() is under way; it ends when nothing is to be sent
  bool connected GUARDED_BY(mutex) = false; ///< the keeper has accepted the present connection

  // Of the I/O thread:
  steady_timer news;     ///< cancelled when there may be something new to do
  socket_ptr socket;     ///< the present connection
  bool closed = false;   ///< the handle is gone
  unsigned failures = 0; ///< attempts since something was acknowledged; of the I/O thread, too

  void close() {
    closed = true;
    news.cancel();
    if (socket)
      socket->close();
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

  /// Something of it, also behind what may take a share only.
  bool is_waited_for() {
    const lock held(mutex);
    return std::ranges::any_of(unacked, [](const auto& x) { return x.what->share_of_link <= 0; });
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
    const bool came = co_await socket->read(bytes);
    auto sequence = came ? decode_acknowledgement(bytes) : std::nullopt;
    if (!sequence)
      break;
    core->acknowledged(*sequence);
    core->failures = 0;
    core->news.cancel();
  }
  socket->close(); // the writer fails, or finds it closed
  if (core->socket == socket)
    core->disconnected();
  core->news.cancel();
}

/// Waits until nobody who trains has something to send over the link, or for `most`.
awaitable<void> let_training_go_first(port_side& side, std::chrono::duration<double> most) {
  steady_timer pause(side.io);
  const auto end = std::chrono::steady_clock::now() + most;
  while (side.connections.trains_over_link() && std::chrono::steady_clock::now() < end) {
    pause.expires_after(500us);
    co_await pause.async_wait(as_result);
  }
}

/// What may take a share of the link only goes in small pieces, so that training waits for little.
awaitable<bool> write_part(stream_core& core, secure_socket& socket, std::span<const std::byte> part, double share) {
  while (!part.empty()) {
    const bool shares = share > 0 && !core.is_waited_for();
    const auto rate = shares ? core.side.part_of(share, socket) : 0;
    core.side.give(socket, rate);
    const auto piece = part.first(std::min(part.size(), rate > 0 ? shared_piece : shares ? turn_bytes : part.size()));
    if (rate > 0)
      co_await let_training_go_first(core.side, max_patience * std::chrono::duration<double>(shared_piece / rate));
    const auto written = co_await socket.write(piece);
    if (!written)
      co_return false;
    part = part.subspan(piece.size());
  }
  co_return true;
}

awaitable<bool> write_shard(stream_core& core, secure_socket& socket, snapshot_frame frame, const snapshot_shard& shard,
                            double share) {
  hash_state hash;
  XXH3_64bits_reset_withSeed(hash.state, seed_of(frame));
  for (const auto& part : shard.parts)
    for (std::size_t at = 0; at < part.size(); at += turn_bytes) {
      XXH3_64bits_update(hash.state, part.data() + at, std::min(part.size() - at, turn_bytes));
      co_await boost::asio::post(core.side.io, boost::asio::use_awaitable); // let others have their turn
    }
  frame.checksum = XXH3_64bits_digest(hash.state);
  auto header = encode(frame);
  bool written = co_await socket.write(header);
  for (const auto& part : shard.parts)
    if (written)
      written = co_await write_part(core, socket, part, share);
  co_return written;
}

/// Counts among those that share what snapshots may take of the link.
class sharer {
public:
  sharer(port_side& side, bool shares) : side_(side), shares_(shares) { side_.sharing += shares_; }
  ~sharer() { side_.sharing -= shares_; }
  sharer(const sharer&) = delete;

private:
  port_side& side_;
  const bool shares_;
};

/// Writes what there is until nothing waits for an acknowledgement, or the connection breaks.
awaitable<void> write_snapshots(core_ptr core, socket_ptr socket) {
  while (!core->closed && !socket->closed() && !core->nothing_left()) {
    std::uint64_t sequence = 0;
    auto what = core->next_to_write(sequence);
    if (!what) {
      core->news.expires_after(std::chrono::hours(1)); // cancelled by an acknowledgement, a new snapshot, or the end
      co_await core->news.async_wait(as_result);
      continue;
    }
    auto left = static_cast<std::uint32_t>(what->shards.size());
    const sharer one(core->side, what->share_of_link > 0);
    for (const auto& shard : what->shards) {
      snapshot_frame frame{sequence, --left, shard->layer, shard->at, {}, what->result, 0};
      for (const auto& part : shard->parts)
        frame.sizes.push_back(part.size());
      auto written = co_await write_shard(*core, *socket, std::move(frame), *shard, what->share_of_link);
      if (!written)
        co_return;
    }
  }
}

/// Longer each time, until something is acknowledged.
awaitable<void> pause(stream_core& core) {
  const auto end = std::chrono::steady_clock::now() + pauses.after(++core.failures);
  while (!core.closed && std::chrono::steady_clock::now() < end) { // news is no reason to try again earlier
    core.news.expires_at(end);
    co_await core.news.async_wait(as_result);
  }
}

/// Dials the keeper. Null: it did not work out.
awaitable<socket_ptr> connect(core_ptr core) {
  const auto& who = core->permit.of;
  const greeting hello{purpose::snapshot, who.index, 0, core->job, {}, core->permit.token, who.life, who.instance};
  auto socket = core->socket = core->side.new_socket(link_side::dialled);
  steady_timer limit(core->side.io, dial_limit);
  limit.async_wait([socket](const error_code& failure) {
    if (!failure)
      socket->close();
  });
  const auto result = co_await introduce(*socket, core->keeper, hello);
  const bool in_time = limit.cancel() > 0;
  if (result.accepted && !socket->closed()) {
    core->side.pace(*socket);
    core->side.watch(socket);
    co_return socket;
  }
  socket->close();
  spdlog::debug("snapshots to keeper {}: {}", to_string(core->keeper.slot),
                in_time ? result.problem : "no answer in time");
  co_return nullptr;
}

awaitable<void> run(core_ptr core) {
  bool connected = false;
  while (!core->closed) {
    {
      const lock held(core->mutex);
      if (core->unacked.empty()) {
        core->running = false;
        co_return;
      }
    }
    if (!core->socket || core->socket->closed()) {
      if (std::exchange(connected, false)) // it broke, or the keeper did not want what was sent
        co_await pause(*core);
      const auto socket = co_await connect(core);
      if (!socket) {
        co_await pause(*core);
        continue;
      }
      connected = true;
      core->restart();
      boost::asio::co_spawn(core->side.io, read_acknowledgements(core, socket), boost::asio::detached);
    }
    co_await write_snapshots(core, core->socket);
  }
}

class tcp_snapshot_stream : public snapshot_stream {
public:
  explicit tcp_snapshot_stream(core_ptr core) : core_(std::move(core)) {}

  ~tcp_snapshot_stream() override {
    boost::asio::post(core_->side.io, [core = core_] { core->close(); });
  }

  void send(std::shared_ptr<const snapshot> x) override {
    if (x->shards.empty())
      return;
    const lock held(core_->mutex);
    auto& waiting = core_->unacked;
    // One that is on its way is finished: else a slow link would never get any snapshot through.
    if (waiting.size() == 2)
      waiting.erase(waiting[0].started && !waiting[1].started ? waiting.begin() + 1 : waiting.begin());
    waiting.push_back({core_->next_sequence++, std::move(x), std::chrono::steady_clock::now()});
    boost::asio::post(core_->side.io, [core = core_, start = !core_->running] {
      if (start)
        boost::asio::co_spawn(core->side.io, run(core), boost::asio::detached);
      else
        core->news.cancel();
    });
    core_->running = true;
  }

  bool busy() const override {
    const lock held(core_->mutex);
    return !core_->unacked.empty() &&
           (core_->connected || std::chrono::steady_clock::now() < core_->unacked.back().since + hope);
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

std::unique_ptr<snapshot_stream> make_snapshot_stream(port_side& side, job_id job, participant keeper,
                                                      const snapshot_permit& permit) {
  return std::make_unique<tcp_snapshot_stream>(std::make_shared<stream_core>(side, job, std::move(keeper), permit));
}

} // namespace parcae
