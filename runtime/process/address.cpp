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
  return {std::string(text.substr(0, colon)), static_cast<std::uint16_t>(port)};
}

address parse_local_address(std::string_view text) {
  auto result = parse_address(text);
  if (result.host == "localhost")
    result.host = "127.0.0.1";
  boost::system::error_code error;
  auto ip = boost::asio::ip::make_address(result.host, error);
  if (error || !ip.is_loopback())
    throw std::invalid_argument("refusing " + result.host +
                                ": there is no TLS yet, use a loopback address such as 127.0.0.1:4242");
  return result;
}

} // namespace parcae
