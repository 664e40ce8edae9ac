#include "runtime/node/dialler.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <set>
#include <thread>

namespace parcae {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::milliseconds dial_limit{2'000};
/// After the manager's first word: by then it has handled what had come in while it stood still.
constexpr std::chrono::milliseconds settling{50};

} // namespace

bool answers(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit) {
  asio::io_context context;
  tcp::resolver resolver(context);
  tcp::socket socket(context);
  char first = 0;
  bool heard = false;
  resolver.async_resolve(host, std::to_string(port), [&](const auto& error, const tcp::resolver::results_type& found) {
    if (error)
      return;
    asio::async_connect(socket, found, [&](const auto& error, const tcp::endpoint&) {
      if (!error)
        socket.async_read_some(asio::buffer(&first, 1), [&](const auto& error, std::size_t) { heard = !error; });
    });
  });
  context.run_for(limit);
  return heard;
}

dialler_actor::behavior_type dialler(dialler_actor::pointer self, caf::io::middleman_actor middleman) {
  return {
      [=](caf::connect_atom, const std::string& host,
          std::uint16_t port) -> caf::result<caf::node_id, caf::strong_actor_ptr, std::set<std::string>> {
        if (!answers(host, port, dial_limit))
          return caf::sec::connection_timeout;
        std::this_thread::sleep_for(settling);
        return self->delegate(middleman, caf::connect_atom_v, host, port);
      },
  };
}

} // namespace parcae
