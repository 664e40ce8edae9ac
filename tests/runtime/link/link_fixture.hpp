#pragma once

// Two processes' control planes in one: a server behind its gate, and whoever dials it.

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/link.hpp"
#include "runtime/process/system.hpp"
#include "tests/support/dial.hpp"
#include "tests/support/names.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

struct link_test : testing::Test {
  using tcp = boost::asio::ip::tcp;

  void SetUp() override {
    server.emplace(options);
    service = server->system().spawn([](service_actor::pointer) -> service_actor::behavior_type {
      return {[](const client_request& x) { return client_reply{x.bytes}; }};
    });
    publish();
  }

  void publish() {
    caf::scoped_actor self(server->system());
    self->request(server->middleman(), std::chrono::seconds(10), caf::publish_atom_v, std::uint16_t{0},
                  caf::actor_cast<caf::strong_actor_ptr>(service), server->system().message_types(service),
                  std::string("127.0.0.1"), true)
        .receive([&](std::uint16_t x) { port = x; }, [](const caf::error& e) { FAIL() << render(e); });
  }

  void TearDown() override {
    stop_server();
    spdlog::set_default_logger(logger_before);
  }

  void stop_server() {
    caf::anon_send_exit(service, caf::exit_reason::user_shutdown);
    service = nullptr;
    server.reset();
  }

  caf::expected<service_actor> reach(control_plane& from, std::uint16_t at) {
    return dial<service_actor>(from.system(), from.middleman(), {"localhost", at});
  }

  /// Bytes that come back for that many, or the error's text.
  static std::string ask(control_plane& from, const service_actor& to, std::size_t bytes,
                         std::chrono::seconds limit = std::chrono::seconds(20)) {
    caf::scoped_actor self(from.system());
    std::string result;
    self->request(to, limit, client_request{std::vector<char>(bytes, 'x')})
        .receive([&](const client_reply& x) { result = std::to_string(x.bytes.size()); },
                 [&](const caf::error& e) { result = render(e); });
    return result;
  }

  tcp::socket stranger(std::string_view says) {
    tcp::socket result(io);
    result.connect({boost::asio::ip::address_v4::loopback(), port});
    boost::asio::write(result, boost::asio::buffer(says));
    return result;
  }

  /// What it hears until the connection ends; nothing if that takes longer than 20 s.
  static std::optional<std::string> hears(tcp::socket& x) {
    auto told = std::async(std::launch::async, [&] {
      std::string result;
      boost::system::error_code end;
      boost::asio::read(x, boost::asio::dynamic_buffer(result), end);
      return result;
    });
    if (told.wait_for(std::chrono::seconds(20)) == std::future_status::ready)
      return told.get();
    x.shutdown(tcp::socket::shutdown_both);
    return std::nullopt;
  }

  std::string content(const caf::message& x) {
    std::vector<char> result;
    caf::binary_serializer sink(server->system(), result);
    EXPECT_FALSE(sink(std::vector<caf::strong_actor_ptr>{}, const_cast<caf::message&>(x)));
    return {result.begin(), result.end()};
  }

  std::string log_text() {
    spdlog::default_logger()->flush();
    return lines.str();
  }

  std::ostringstream lines;
  std::shared_ptr<spdlog::logger> logger_before = [this] {
    auto before = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines)));
    return before;
  }();
  link_options options;
  boost::asio::io_context io;
  std::optional<control_plane> server;
  service_actor service;
  std::uint16_t port = 0;
};

} // namespace parcae
