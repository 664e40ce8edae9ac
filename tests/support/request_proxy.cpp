#include "tests/support/request_proxy.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <fcntl.h>

#include <chrono>
#include <ctime>

namespace parcae {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::use_awaitable;

std::string date_in(std::chrono::hours ahead) {
  const auto time = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + ahead);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[40];
  return {text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

http::response<http::string_body> refusal(unsigned status, const std::string& code, std::chrono::hours ahead = {}) {
  http::response<http::string_body> result(static_cast<http::status>(status), 11);
  result.set(http::field::date, date_in(ahead));
  result.body() =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>" + code + "</Code><Message>a test</Message></Error>";
  result.prepare_payload();
  return result;
}

/// Nodes that a test starts must not inherit it: it would stay open there when it is closed here.
void keep_from_children(int descriptor) {
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

} // namespace

request_proxy::request_proxy(std::uint16_t target, decision decide, news lost) :
    target_(target), decide_(std::move(decide)), lost_(std::move(lost)),
    acceptor_(io_, {asio::ip::address_v4::loopback(), 0}), port_(acceptor_.local_endpoint().port()) {
  keep_from_children(acceptor_.native_handle());
  asio::co_spawn(io_, accept(), asio::detached);
  thread_ = std::thread([this] { io_.run(); });
}

request_proxy::~request_proxy() {
  io_.stop();
  thread_.join();
}

std::vector<std::string> request_proxy::requests() const {
  const std::lock_guard held(mutex_);
  return requests_;
}

asio::awaitable<void> request_proxy::accept() {
  for (;;) {
    auto client = co_await acceptor_.async_accept(use_awaitable);
    keep_from_children(client.native_handle());
    asio::co_spawn(io_, serve(std::move(client)), [](const std::exception_ptr&) {}); // who hangs up is of no interest
  }
}

asio::awaitable<void> request_proxy::serve(socket client) {
  boost::beast::flat_buffer from_client, from_server;
  socket server(io_);
  for (;;) {
    http::request_parser<http::string_body> request;
    request.body_limit(boost::none);
    co_await http::async_read(client, from_client, request, use_awaitable);
    seen_request seen{0, std::string(request.get().method_string()), std::string(request.get().target())};
    {
      const std::lock_guard held(mutex_);
      requests_.push_back(seen.method + " " + seen.target);
      seen.number = static_cast<unsigned>(requests_.size());
    }
    const auto what = decide_(seen);
    if (what == fate::hang_up)
      co_return;
    if (what == fate::silence) {
      asio::steady_timer never(io_, std::chrono::hours(1));
      co_await never.async_wait(use_awaitable);
    }
    if (what == fate::unavailable || what == fate::expired || what == fate::skewed) {
      auto answer = what == fate::unavailable ? refusal(503, "SlowDown")
                    : what == fate::expired   ? refusal(403, "ExpiredToken")
                                              : refusal(403, "RequestTimeTooSkewed", std::chrono::hours(1));
      if (seen.method == "HEAD")
        answer.body().clear();
      co_await http::async_write(client, answer, use_awaitable);
      continue;
    }
    if (!server.is_open()) {
      server.open(asio::ip::tcp::v4());
      keep_from_children(server.native_handle());
      co_await server.async_connect({asio::ip::address_v4::loopback(), target_}, use_awaitable);
    }
    http::request_serializer<http::string_body> to_server(request.get());
    if (what == fate::cut_request || what == fate::half) {
      co_await http::async_write_header(server, to_server, use_awaitable);
      const auto& body = request.get().body();
      co_await asio::async_write(server, asio::buffer(body.data(), body.size() / 2), use_awaitable);
      if (what == fate::half)
        lost_(seen);
      co_return;
    }
    co_await http::async_write(server, to_server, use_awaitable);
    http::response_parser<http::string_body> answer;
    answer.body_limit(boost::none);
    answer.skip(seen.method == "HEAD");
    co_await http::async_read(server, from_server, answer, use_awaitable);
    if (what == fate::lose_answer) {
      lost_(seen);
      co_return;
    }
    auto message = answer.release();
    http::response_serializer<http::string_body> to_client(message);
    if (what == fate::cut_answer || seen.method == "HEAD") {
      co_await http::async_write_header(client, to_client, use_awaitable);
      if (seen.method == "HEAD" && what != fate::cut_answer)
        continue;
      co_await asio::async_write(client, asio::buffer(message.body().data(), message.body().size() / 2), use_awaitable);
      co_return;
    }
    co_await http::async_write(client, to_client, use_awaitable);
    if (!message.keep_alive())
      co_return;
  }
}

} // namespace parcae
