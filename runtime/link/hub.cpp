#include "runtime/link/hub.hpp"

#include "protocols/base/as_result.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/duration.hpp"
#include "runtime/link/connection.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <future>
#include <utility>

namespace parcae {

namespace {

using namespace std::chrono_literals;
using boost::asio::awaitable;
using boost::asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using stream_protocol = boost::asio::local::stream_protocol;

constexpr double unlimited = 1e9;            ///< questions a second, of the manager's
constexpr milliseconds name_limit = 5'000ms; ///< on top of a dial's, for a name that is not resolved

} // namespace

struct hub::acceptor {
  tcp::acceptor socket;
  arrival on_arrival;
};

hub::hub(const link_options& x) :
    options_(x), pulse_(io_),
    strangers_(
        options_.strangers,
        {.too_old = [this](const connection_ptr& old) { refuse(*old, "others wait, and it did not " + old->step); },
         .none_comes_in =
             [this](const std::string& why) {
               if (const auto left_out = refusals_.admit(std::chrono::steady_clock::now()))
                 spdlog::error("cannot accept connections: {}{}", why, *left_out);
             }}) {
  if (has_bundle())
    read_bundle();
  start(watch());
  thread_ = std::thread([this] { run(); });
}

hub::~hub() {
  serve(nullptr);
  boost::asio::post(io_, [this] {
    ending_ = true;
    for (const auto& x : members_)
      x->due = std::min(x->due, by(options_.goodbye));
    pulse_.cancel();
  });
  thread_.join();
}

void hub::run() {
  use_crash_stack();
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception& e) {
      spdlog::error("control connections: {}", e.what());
    }
  }
}

void hub::start(awaitable<void> x) {
  boost::asio::co_spawn(io_, std::move(x), [](std::exception_ptr failure) {
    try {
      if (failure)
        std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      spdlog::error("control connections: {}", e.what());
    }
  });
}

template <class Function>
auto hub::on_thread(Function&& f) {
  std::packaged_task<decltype(f())()> task(std::forward<Function>(f));
  auto result = task.get_future();
  boost::asio::post(io_, [&task] { task(); });
  return result.get();
}

void hub::serve(caf::actor_system* x) {
  on_thread([&] {
    system_ = x;
    if (x)
      return;
    error_code ignored;
    for (auto& [number, from] : acceptors_)
      from->socket.close(ignored);
    acceptors_.clear();
    for (const auto& y : std::list<connection_ptr>(strangers_.all()))
      end(*y);
    for (const auto& y : std::list<connection_ptr>(members_))
      if (!y->trusted)
        end(*y);
  });
}

void hub::read_bundle() {
  own_ = std::make_shared<credentials>(options_.bundle, own_.get());
  const lock held(mutex_);
  self_ = own_->self();
}

std::string hub::read_bundle_again() {
  if (!has_bundle())
    return {};
  return on_thread([&]() -> std::string {
    try {
      read_bundle();
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    for (auto all : {strangers_.all(), members_})
      for (const auto& x : all)
        if (x->peer && own_->revoked(*x->peer)) {
          spdlog::warn("closed the connection of {}: its certificate is revoked", x->name());
          end(*x);
        }
    return {};
  });
}

std::optional<identity> hub::identity_of(const caf::node_id& x) const {
  return nodes_.identity_of(caf::to_string(x));
}

void hub::refuse(connection& x, const std::string& why) {
  if (!x.over)
    if (const auto left_out = refusals_.admit(std::chrono::steady_clock::now()))
      spdlog::warn("{} {} {}: {}{}", x.trusted ? "closed the connection" : "refused a connection",
                   x.here == link_side::accepted ? "from" : "to", x.name(), why, *left_out);
  end(x);
}

void hub::trust(const connection_ptr& x) {
  x->trusted = true;
  error_code unknown;
  x->elsewhere = x->socket.remote_endpoint(unknown).address() != x->socket.local_endpoint(unknown).address();
  x->due = connection::no_limit;
  x->step.clear();
  if (strangers_.remove(*x))
    members_.push_back(x);
}

void hub::end(connection& x) {
  if (std::exchange(x.over, true))
    return;
  x.close();
  x.together = nullptr;
  nodes_.release(x.node, &x, awake_);
  strangers_.remove(x); // the caller holds it
  std::erase_if(members_, [&](const auto& y) { return y.get() == &x; });
}

// --- what comes in

hub::listener hub::listen(const std::string& host, std::uint16_t port, arrival on_arrival) {
  return on_thread([&]() -> listener {
    try {
      const tcp::endpoint where =
          *tcp::resolver(io_).resolve(host, std::to_string(port), tcp::resolver::passive).begin();
      if (auto problem = problem_of_place(where, has_bundle()); !problem.empty())
        return {0, 0, problem};
      auto x = std::make_shared<acceptor>(acceptor{tcp::acceptor(io_), std::move(on_arrival)});
      listen_on(x->socket, where);
      const auto number = next_listener_++;
      acceptors_[number] = x;
      start(accept(x));
      return {number, x->socket.local_endpoint().port(), {}};
    } catch (const boost::system::system_error& e) {
      return {0, 0, problem_of_listening(e.code())};
    }
  });
}

void hub::stop_listening(std::uint64_t number) {
  on_thread([&] {
    const auto at = acceptors_.find(number);
    if (at == acceptors_.end())
      return;
    error_code ignored;
    at->second->socket.close(ignored);
    acceptors_.erase(at);
  });
}

awaitable<void> hub::accept(std::shared_ptr<acceptor> from) {
  co_await strangers_.accept(from->socket, [&](tcp::socket socket) {
    auto x = std::make_shared<connection>(io_, std::move(socket), link_side::accepted, own_);
    strangers_.add(x);
    start(admit(std::move(x), from));
  });
}

awaitable<void> hub::admit(connection_ptr x, std::shared_ptr<acceptor> from) {
  x->step = "say what it is";
  x->due = by(options_.greeting);
  if (const auto problem = co_await x->secure(); !problem.empty())
    co_return refuse(*x, problem);
  if (x->peer && !(x->together = holders_.join(*x->peer, x->peer->fleet ? options_.of_fleet : options_.of_one)))
    co_return refuse(*x, "its certificate has as many connections here as one may have");
  std::array<char, link_greeting.size()> greeting{};
  std::size_t heard = 0;
  while (heard < greeting.size()) {
    const auto size = co_await x->read_some(std::as_writable_bytes(std::span(greeting).subspan(heard)));
    heard += size;
    if (x->over)
      co_return;
    if (std::string_view(greeting.data(), heard) != link_greeting.substr(0, heard))
      co_return refuse(*x, "it is no program of Parcae's");
    if (size == 0)
      co_return end(*x); // it left: somebody looked whether the port is open
  }
  // Who dialled while this process stood still has given up meanwhile.
  if (x->left() || !from->socket.is_open())
    co_return end(*x);
  const auto descriptor = pair_for(*x);
  if (descriptor < 0)
    co_return refuse(*x, "no descriptors are left");
  x->step = "shake hands";
  x->due = by(options_.first_frame);
  error_code unknown;
  const auto peer = x->socket.remote_endpoint(unknown);
  from->on_arrival(descriptor, peer.address().to_string(), peer.port());
  pump(x, {});
}

/// Returns the end for CAF; −1 if there are no descriptors.
int hub::pair_for(connection& x) {
  int ends[2];
  while (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
    if (!strangers_.drop_oldest(&x))
      return -1;
  x.caf.assign(stream_protocol(), ends[0]);
  return ends[1];
}

// --- what goes out

hub::dialled hub::dial(const std::string& host, std::uint16_t port) {
  struct shared {
    std::promise<dialled> promise;
    std::atomic<bool> abandoned{false};
  };
  auto state = std::make_shared<shared>();
  auto answer = state->promise.get_future();
  boost::asio::post(io_, [this, state, host, port] {
    auto x = std::make_shared<connection>(io_, tcp::socket(io_), link_side::dialled, own_);
    members_.push_back(x);
    start(reach(std::move(x), host, port, [state](dialled result) {
      if (state->abandoned && result.descriptor >= 0)
        ::close(result.descriptor);
      else
        state->promise.set_value(std::move(result));
    }));
  });
  if (answer.wait_for(options_.dial + options_.settle + name_limit) == std::future_status::ready)
    return answer.get();
  state->abandoned = true;
  return {-1, true, false, "the name " + host + " is not resolved in time"};
}

awaitable<void> hub::reach(connection_ptr x, std::string host, std::uint16_t port,
                           std::function<void(dialled)> answer) {
  const auto fail = [&](std::string why, bool refused = false) {
    end(*x);
    answer({-1, x->expired, refused && !x->expired, x->expired ? "no answer in time" : std::move(why)});
  };
  if (!system_)
    co_return fail("this process ends");
  x->due = by(options_.dial);
  x->resolver.emplace(io_);
  auto [unknown, found] = co_await x->resolver->async_resolve(host, std::to_string(port), as_result);
  if (unknown || x->over)
    co_return fail("the name " + host + " is not resolved: " + unknown.message());
  for (const auto& entry : found)
    if (const auto problem = problem_of_place(entry.endpoint(), has_bundle()); !problem.empty())
      co_return fail(problem, true);
  if (const auto problem = co_await x->reach(found); !problem.empty())
    co_return fail(problem);
  if (const auto problem = co_await x->secure(); !problem.empty())
    co_return fail(problem, true);
  const std::string closed =
      own_ ? "it closed the connection" : "it closed the connection; perhaps it wants a --bundle";
  if (!co_await x->write(std::as_bytes(std::span(link_greeting))))
    co_return fail(closed, true);
  std::vector<char> first(link_piece);
  first.resize(co_await x->read_some(std::as_writable_bytes(std::span(first))));
  if (first.empty()) // TLS 1.3 tells who dialled only now that its certificate is refused
    co_return fail(own_ && !x->failure.empty() ? "it refuses " + to_string(x->own->self()) + ": " + x->failure : closed,
                   true);
  if (options_.settle > 0ms) {
    boost::asio::steady_timer settling(io_, options_.settle);
    co_await settling.async_wait(as_result);
  }
  const auto descriptor = x->over ? -1 : pair_for(*x);
  if (descriptor < 0)
    co_return fail("no descriptors are left");
  x->step = "shake hands";
  x->due = by(options_.first_frame);
  pump(x, std::move(first));
  answer({descriptor, false, false, {}});
}

// --- between

void hub::pump(const connection_ptr& x, std::vector<char> first) {
  x->open(x->here == link_side::accepted ? options_.questions : unlimited);
  start(inbound(x, std::move(first)));
  start(outbound(x));
}

awaitable<void> hub::inbound(connection_ptr x, std::vector<char> first) {
  std::vector<char> piece(std::move(first));
  auto size = piece.size();
  piece.resize(link_piece);
  for (;; size = 0) {
    if (size == 0)
      size = co_await x->read_some(std::as_writable_bytes(std::span(piece)));
    if (x->over)
      co_return;
    if (size == 0)
      break;
    if (!system_ || x->caf_ended)
      continue; // nobody is there to hear it
    if (!co_await let_in(x, std::span(piece.data(), size)))
      co_return;
  }
  // CAF reads what it was given, then the end, and closes its side.
  x->peer_ended = true;
  nodes_.release(x->node, x.get(), awake_);
  if (x->caf_ended)
    co_return end(*x);
  error_code ignored;
  x->caf.shutdown(stream_protocol::socket::shutdown_send, ignored);
  say_goodbye_by(*x);
}

/// What came in goes to CAF, as soon as it may. False: the connection is over.
awaitable<bool> hub::let_in(connection_ptr x, std::span<const char> bytes) {
  const auto check_of_x = [&](const frame_header& header, std::span<const char> payload) {
    return check(*x, header, payload);
  };
  // Who asks and takes no answers would fill CAF's memory with these.
  const auto waits = [&] {
    return x->here == link_side::accepted && x->talk->unanswered() >= options_.unanswered && !x->caf_ended;
  };
  for (std::vector<char> checked; !bytes.empty() && system_ && !x->caf_ended; checked.clear()) {
    const auto heard = x->talk->heard();
    do {
      if (const auto problem = x->gate->pass_frame(bytes, checked, check_of_x); !problem.empty()) {
        refuse(*x, problem);
        co_return false;
      }
    } while (!bytes.empty() && !waits());
    if (!x->trusted && x->gate->opened())
      trust(x);
    if (!checked.empty())
      co_await boost::asio::async_write(x->caf, boost::asio::buffer(checked), as_result);
    if (const auto pause = x->over ? 0ms : x->pay(x->talk->heard() - heard); pause > 0ms) {
      boost::asio::steady_timer turn(io_, pause);
      co_await turn.async_wait(as_result);
    }
    while (!x->over && waits()) {
      if (x->due == connection::no_limit) { // else it is about to end
        x->step = "take its answers";
        x->due = by(options_.write);
      }
      co_await x->answered.async_wait(as_result);
      if (!std::exchange(x->step, {}).empty() && !ending_)
        x->due = connection::no_limit;
    }
    if (x->over)
      co_return false;
  }
  co_return true;
}

awaitable<void> hub::outbound(connection_ptr x) {
  std::vector<char> piece(link_piece), said;
  bool gone = false; ///< the peer takes nothing more
  for (;;) {
    const auto [ended, size] = co_await x->caf.async_read_some(boost::asio::buffer(piece), as_result);
    if (x->over)
      co_return;
    if (ended)
      break;
    if (gone)
      continue;
    said.clear();
    const auto unanswered = x->talk->unanswered();
    x->speech.pass(system_, std::span(piece.data(), size), said, *x->talk);
    if (x->talk->unanswered() < unanswered)
      x->answered.cancel();
    x->write_due = by(options_.write);
    gone = !co_await x->write(std::as_bytes(std::span(said)));
    x->write_due = connection::no_limit;
    if (x->over)
      co_return;
    if (gone)
      say_goodbye_by(*x);
  }
  x->caf_ended = true;
  x->answered.cancel();
  nodes_.release(x->node, x.get(), awake_);
  error_code ignored;
  x->caf.close(ignored); // CAF waits for it
  if (x->peer_ended)
    co_return end(*x);
  x->say_goodbye();
  say_goodbye_by(*x);
}

/// From now on it has little time left.
void hub::say_goodbye_by(connection& x) {
  x.step.clear();
  x.due = std::min(x.due, by(options_.goodbye));
}

std::string hub::check(connection& x, const frame_header& header, std::span<const char> payload) {
  if (auto problem = x.talk->hear(*system_, header, payload); !problem.empty() || !x.node.empty())
    return problem;
  auto node = caf::to_string(x.talk->node()); // it was its handshake
  if (auto problem = nodes_.claim(node, &x, x.peer); !problem.empty())
    return problem;
  x.node = std::move(node);
  if (x.here == link_side::dialled) {
    const lock held(mutex_);
    other_build_ = x.talk->other_build();
  }
  return {};
}

} // namespace parcae
