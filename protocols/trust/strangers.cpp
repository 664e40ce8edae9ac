#include "protocols/trust/strangers.hpp"

#include <cerrno>

namespace parcae {

void listen_on(boost::asio::ip::tcp::acceptor& x, const boost::asio::ip::tcp::endpoint& where) {
  x.open(where.protocol());
  keep_from_children(x.native_handle());
  x.set_option(boost::asio::ip::tcp::acceptor::reuse_address(true)); // connections of a process before may linger
  x.bind(where);
  x.listen();
}

bool is_exhausted(const boost::system::error_code& x) {
  namespace error = boost::asio::error;
  return x == error::no_descriptors || x == error::no_memory || x == error::no_buffer_space || x.value() == ENFILE;
}

} // namespace parcae
