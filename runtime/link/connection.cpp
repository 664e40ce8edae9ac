#include "runtime/link/connection.hpp"

#include <boost/asio/io_context.hpp>

#include <algorithm>

namespace parcae {

using boost::asio::awaitable;

connection::connection(boost::asio::io_context& io, boost::asio::ip::tcp::socket to, link_side side,
                       std::shared_ptr<const credentials> shown) :
    secure_socket(std::move(to), side, std::move(shown)),
    caf(io), answered(io, boost::asio::steady_timer::time_point::max()) {}

awaitable<std::string> connection::secure() {
  if (auto problem = co_await secure_socket::secure(); !problem.empty() || !peer)
    co_return problem;
  const bool is_manager = peer->role == membership::manager;
  if (is_manager != (here == link_side::dialled))
    co_return "it is " + to_string(*peer) + (is_manager ? ", which dials nobody" : ", and not the manager");
  co_return std::string();
}

namespace {

speaker speaker_at(link_side here, const std::optional<identity>& peer) {
  if (here == link_side::dialled)
    return speaker::manager;
  if (!peer)
    return speaker::anyone;
  return joins(peer->role) ? speaker::member : speaker::client; // a manager dials nobody
}

} // namespace

void connection::open(double questions) {
  const auto there = speaker_at(here, peer);
  gate.emplace(here, max_message_bytes(there));
  talk.emplace(here, there);
  allowed.emplace(questions);
}

std::chrono::milliseconds connection::pay(double questions) {
  const auto now = std::chrono::steady_clock::now();
  const auto own = allowed->take(now, questions);
  return together ? std::max(own, together->take(now, questions)) : own;
}

void connection::close() {
  if (resolver)
    resolver->cancel();
  answered.cancel();
  secure_socket::close();
  boost::system::error_code ignored;
  caf.close(ignored);
}

} // namespace parcae
