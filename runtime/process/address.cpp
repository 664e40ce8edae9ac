#include "runtime/process/address.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/udp.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

address checked(std::string_view text, bool with_port, const char* example) {
  auto found = parse_host_and_port(text);
  if (!found || (with_port && !found->port))
    throw std::invalid_argument("\"" + std::string(text) + "\" is not " +
                                (with_port ? "HOST:PORT" : "HOST or HOST:PORT") + ", for example " + example +
                                ", IPv6 in brackets");
  return {std::move(found->host), found->port.value_or(0)};
}

address on_loopback(address x) {
  if (x.host == "localhost")
    x.host = "127.0.0.1";
  if (!is_loopback(x.host))
    throw std::invalid_argument("refusing " + x.host +
                                ": without --bundle there is no TLS, and only loopback, such as "
                                "127.0.0.1; `parcae init` makes bundles");
  return x;
}

} // namespace

bool is_loopback(const std::string& host) {
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(host, error);
  return host == "localhost" || (!error && ip.is_loopback());
}

address parse_address(std::string_view text) {
  return checked(text, true, "127.0.0.1:4242");
}

address parse_place(std::string_view text, const std::string& bundle) {
  auto result = checked(text, false, "10.0.0.7");
  return bundle.empty() ? on_loopback(std::move(result)) : result;
}

address parse_local_address(std::string_view text) {
  return on_loopback(parse_address(text));
}

std::string address_towards(const std::vector<address>& any) {
  using boost::asio::ip::udp;
  std::string problem;
  for (const auto& x : any)
    try {
      boost::asio::io_context io;
      udp::socket socket(io);
      socket.connect(*udp::resolver(io).resolve(x.host, std::to_string(x.port)).begin()); // sends nothing
      return socket.local_endpoint().address().to_string();
    } catch (const boost::system::system_error& e) {
      problem = to_string(x) + " (" + e.code().message() + ")";
    }
  throw std::runtime_error("cannot tell by which address of this machine others reach it, for there is no way to " +
                           problem + ": check --manager, or say it with --listen");
}

bool is_everywhere(const std::string& host) {
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(host, error);
  return !error && ip.is_unspecified();
}

address parse_manager_address(std::string_view text, const std::string& bundle) {
  return bundle.empty() ? parse_local_address(text) : parse_address(text);
}

manager_access parse_access(std::string_view managers, const std::string& bundle) {
  manager_access result;
  result.bundle = bundle;
  for (std::size_t from = 0; from <= managers.size();) {
    const auto comma = std::min(managers.find(',', from), managers.size());
    result.managers.push_back(parse_manager_address(managers.substr(from, comma - from), bundle));
    from = comma + 1;
  }
  return result;
}

std::string to_string(const std::vector<address>& managers) {
  std::string result;
  for (const auto& x : managers)
    result += (result.empty() ? "" : ",") + to_string(x);
  return result;
}

} // namespace parcae
