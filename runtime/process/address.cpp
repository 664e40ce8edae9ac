#include "runtime/process/address.hpp"

#include <boost/asio/ip/address.hpp>

#include <charconv>
#include <stdexcept>

namespace parcae {

address parse_address(std::string_view text) {
  auto colon = text.rfind(':');
  unsigned port = 0;
  auto bad = colon == std::string_view::npos || colon == 0;
  if (!bad) {
    auto digits = text.substr(colon + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    bad = error != std::errc{} || end != digits.data() + digits.size() || port > 65535;
  }
  if (bad)
    throw std::invalid_argument("\"" + std::string(text) + "\" is not HOST:PORT, for example 127.0.0.1:4242");
  auto host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

address parse_local_address(std::string_view text) {
  auto result = parse_address(text);
  if (result.host == "localhost")
    result.host = "127.0.0.1";
  boost::system::error_code error;
  auto ip = boost::asio::ip::make_address(result.host, error);
  if (error || !ip.is_loopback())
    throw std::invalid_argument("refusing " + result.host +
                                ": without --bundle there is no TLS, and only loopback, such as 127.0.0.1:4242");
  return result;
}

manager_access parse_access(std::string_view where, const std::string& bundle) {
  return {bundle.empty() ? parse_local_address(where) : parse_address(where), bundle};
}

} // namespace parcae
