#include "gpu/dataplane/pass_gate.hpp"

#include "gpu/dataplane/handshake.hpp"
#include "gpu/dataplane/tcp_communicator.hpp"
#include "protocols/base/as_result.hpp"
#include "protocols/base/back_off.hpp"
#include "protocols/base/text.hpp"

#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace parcae {

namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr back_off dial_pauses{5ms, 250ms};
constexpr auto cancel_poll = 5ms;

/// The connection as that of two participants, of whom this side is the first.
std::unique_ptr<communicator> as_communicator(port_side& side, socket_ptr socket, std::string name) {
  std::vector<tcp_peer> peers(2);
  peers[pass_peer] = {std::move(socket), std::move(name)};
  std::vector<watched_connection> watched;
  auto result = make_tcp_communicator(1 - pass_peer, std::move(peers), watched);
  for (auto& x : watched)
    side.connections.add(std::move(x));
  return result;
}

} // namespace

void pass_door::close() {
  std::array<std::shared_ptr<communicator>, 2> all;
  {
    const lock held(mutex);
    open = false;
    all.swap(newest);
  }
  for (auto& x : all)
    if (x)
      x->abort();
}

class pass_doors::gate final : public pass_gate {
public:
  gate(pass_doors& doors, const pass_door_key& key, std::shared_ptr<pass_door> door, runner on_io) :
      doors_(doors), key_(key), door_(std::move(door)), on_io_(std::move(on_io)) {}

  ~gate() override {
    on_io_([&] {
      if (const auto x = doors_.all_.find(key_); x != doors_.all_.end() && x->second == door_)
        doors_.all_.erase(x);
    });
    door_->close();
  }

  std::shared_ptr<communicator> newest(pass_end end) override {
    const lock held(door_->mutex);
    return door_->newest[static_cast<std::size_t>(end)];
  }

  void close() noexcept override { door_->close(); }

private:
  pass_doors& doors_;
  const pass_door_key key_;
  const std::shared_ptr<pass_door> door_;
  const runner on_io_;
};

std::unique_ptr<pass_gate> pass_doors::open(const pass_door_key& key, const data_token& token, const runner& on_io) {
  const auto door = std::make_shared<pass_door>();
  door->token = token;
  on_io([&] { all_[key] = door; });
  return std::make_unique<gate>(*this, key, door, on_io);
}

refusal pass_doors::admit(socket_ptr guest, const greeting& hello) {
  const auto x = all_.find({hello.job, hello.of, hello.to});
  if (x == all_.end())
    return refusal::unknown;
  auto& door = *x->second;
  if (!(hello.token == door.token) || hello.from > static_cast<std::uint32_t>(pass_end::tokens))
    return refusal::token;
  std::shared_ptr<communicator> before;
  const lock held(door.mutex); // what the gateway says when it is let in finds this connection
  if (!door.open || guest->left() || !guest->write_now(encode(refusal::none))) {
    guest->close();
    return refusal::none; // it has gone, or may try again
  }
  const auto name = guest->name();
  before = std::exchange(door.newest[hello.from], as_communicator(side_, std::move(guest), "the gateway at " + name));
  if (before)
    before->abort();
  return refusal::none;
}

boost::asio::awaitable<void> dial_for_passes(port_side& side, std::shared_ptr<pass_dial> x) {
  boost::asio::steady_timer pause(side.io);
  const auto& what = x->what;
  const greeting hello{
      purpose::passes, static_cast<std::uint32_t>(what.end), what.rank, what.job, what.of, what.token, {}, {}};
  for (unsigned attempt = 1; !x->ended; ++attempt) {
    auto socket = x->socket = side.new_socket(link_side::dialled);
    const auto result = co_await introduce(*socket, what.to, hello);
    if (x->ended)
      co_return;
    if (result.accepted) {
      side.pace(*socket);
      x->socket = nullptr;
      auto link = as_communicator(side, std::move(socket), to_string(what.to.slot));
      const lock held(x->mutex);
      x->result = std::move(link);
      x->changed.notify_all();
      co_return;
    }
    socket->close();
    {
      const lock held(x->mutex);
      x->problem = result.problem;
      x->hopeless = result.final;
      x->changed.notify_all();
    }
    if (result.final)
      co_return;
    pause.expires_after(dial_pauses.after(attempt));
    co_await pause.async_wait(as_result);
  }
}

void pass_dial::end() {
  ended = true;
  if (socket)
    socket->close();
}

std::string pass_dial::why_not() {
  const lock held(mutex);
  return to_string(what.to.slot) + " at " + with_port(what.to.host, what.to.port) + ": " + problem;
}

std::unique_ptr<communicator> wait_for(pass_dial& x, std::chrono::milliseconds limit,
                                       const std::atomic<bool>& cancelled) {
  const auto deadline = clock::now() + limit;
  lock held(x.mutex);
  while (!x.result && !x.hopeless && !cancelled && clock::now() < deadline)
    held.wait_until(x.changed, std::min<clock::time_point>(deadline, clock::now() + cancel_poll));
  return std::move(x.result);
}

} // namespace parcae
