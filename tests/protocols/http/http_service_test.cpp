// An HTTP service before clients who behave, who do not, and who go: answers, streams, limits, TLS.

#include "protocols/http/http_client.hpp"
#include "protocols/http/http_service.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"
#include "tests/support/web_client.hpp"
#include "tests/support/web_double.hpp"

#include <boost/asio/post.hpp>

#include <atomic>
#include <future>
#include <sstream>
#include <thread>

namespace parcae {
namespace {

namespace asio = boost::asio;

http_reply text_reply(unsigned status, const std::string& text) {
  return {status, {{"Content-Type", "text/plain"}}, std::make_shared<const std::string>(text)};
}

/// /echo answers with the body, /stream what `add` says, /secret nothing; counts streams that somebody reads.
class service_double final : public http_answerer {
public:
  explicit service_double(const http_service_limits& limits = {}, const http_identity& identity = {}) :
      service_(context_, {asio::ip::address_v4::loopback(), 0}, identity, *this, limits) {}
  ~service_double() override { context_.stop(); }

  std::uint16_t port() const { return service_.port(); }
  bool certificate_ends_within(std::chrono::seconds x) const { return service_.certificate_ends_within(x); }
  int readers() const { return readers_; }
  int bodies() const { return bodies_; }

  /// To all who read.
  void add(const std::string& text) {
    do_there([&] {
      for (const auto& x : streams_)
        if (const auto stream = x.lock())
          stream->add(std::make_shared<const std::string>(text));
    });
  }
  void end() {
    do_there([&] {
      for (const auto& x : streams_)
        if (const auto stream = x.lock())
          stream->end();
    });
  }

  std::size_t max_behind = 1 << 20;
  bool last = false;

private:
  std::optional<http_reply> refusal(const http_head& head) override {
    if (head.target == "/secret" && head.header("authorization") != "Bearer key")
      return text_reply(401, "no");
    return std::nullopt;
  }

  asio::awaitable<http_reply> answer(const http_head& head, std::string body) override {
    ++bodies_;
    if (head.target != "/stream")
      co_return text_reply(200, head.method + " " + std::to_string(head.count("x")) + " " + body);
    http_reply result{200, {{"Content-Type", "text/event-stream"}}};
    result.is_last = last;
    result.stream = std::make_shared<http_stream>(
        context_.get_executor(), std::vector{std::make_shared<const std::string>("first\n")}, max_behind, ":\n\n");
    ++readers_;
    result.stream->source = std::shared_ptr<const void>(this, [this](const void*) { --readers_; });
    streams_.push_back(result.stream);
    co_return result;
  }

  http_reply error(unsigned status, const std::string& line) override { return text_reply(status, line); }

  template <class Function>
  void do_there(Function f) {
    std::promise<void> done;
    asio::post(context_, [&] {
      f();
      done.set_value();
    });
    done.get_future().get();
  }

  asio::io_context context_{1};
  std::atomic<int> readers_ = 0, bodies_ = 0;
  std::vector<std::weak_ptr<http_stream>> streams_;
  http_service service_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  std::jthread thread_{[this] { context_.run(); }}; ///< ended first
};

std::string question(const std::string& method, const std::string& target, const std::string& more = {}) {
  return method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n";
}

/// A chunk of a stream.
std::string chunk(const std::string& text) {
  std::ostringstream size;
  size << std::hex << text.size();
  return size.str() + "\r\n" + text + "\r\n";
}

// given: requests one after the other, some at once / expected: an answer to each, in their order, on one connection
TEST(http_service, answers) {
  service_double service;
  web_client x(service.port());
  x.send(question("POST", "/echo", "Content-Length: 3\r\nX: 1\r\nx: 2\r\n") + "abc" + question("GET", "/echo"));
  EXPECT_EQ(x.receive().body, "POST 2 abc");
  EXPECT_EQ(x.receive().body, "GET 0 ");
  x.send(question("HEAD", "/echo"));
  const auto head = x.receive(true);
  EXPECT_EQ(head.status, 200u);
  EXPECT_EQ(head.headers.at("Content-Length"), "7");
  EXPECT_EQ(head.body, "");
  x.send(question("POST", "/echo", "Transfer-Encoding: chunked\r\n") + chunk("de") + chunk("f") + "0\r\n\r\n");
  EXPECT_EQ(x.receive().body, "POST 0 def");
  x.send(question("GET", "/echo", "Connection: close\r\n"));
  EXPECT_EQ(x.receive().body, "GET 0 ");
  EXPECT_EQ(x.receive_all(), "");
}

// given: a request that is refused by its header / expected: its body is not read; with the key it is
TEST(http_service, refuses_before_the_body) {
  service_double service;
  web_client x(service.port());
  x.send(question("POST", "/secret", "Content-Length: 1000000\r\n"));
  const auto refusal = x.receive();
  EXPECT_EQ(refusal.status, 401u);
  EXPECT_EQ(refusal.headers.at("Connection"), "close");
  EXPECT_EQ(x.receive_all(), "");
  EXPECT_EQ(service.bodies(), 0);
  web_client again(service.port());
  again.send(question("POST", "/secret", "Content-Length: 2\r\nAuthorization: Bearer key\r\nExpect: 100-continue\r\n"));
  EXPECT_THAT(again.receive_until("\r\n\r\n"), StartsWith("HTTP/1.1 100 Continue"));
  again.send("ab");
  EXPECT_EQ(again.receive().body, "POST 0 ab");
}

// given: what is too large, too slow, or no HTTP / expected: its status with a line, and the end
TEST(http_service, limits) {
  service_double service({.header_bytes = 1024, .body_bytes = 2048, .idle = 10s, .header = 50ms});
  const auto told = [&](const std::string& text) {
    web_client x(service.port());
    x.send(text);
    const auto reply = x.receive();
    EXPECT_EQ(x.receive_all(), "");
    return std::to_string(reply.status) + " " + reply.body;
  };
  EXPECT_EQ(told(question("GET", "/echo", "More: " + std::string(1024, 'x') + "\r\n")),
            "431 the header is larger than 1 KiB");
  EXPECT_EQ(told(question("POST", "/echo", "Content-Length: 2049\r\n") + std::string(2049, 'x')),
            "413 the body is larger than 2 KiB");
  EXPECT_THAT(told("hello\r\n\r\n"), StartsWith("400 this is no HTTP: "));
  for (const auto* const bad : {"fffffffffffffffffffff\r\nabc", "3\r\nabcdef\r\n", "x\r\n"})
    EXPECT_THAT(told(question("POST", "/echo", "Transfer-Encoding: chunked\r\n") + bad),
                StartsWith("400 this is no HTTP: "));
  web_client kept(service.port());
  kept.send(question("GET", "/echo"));
  EXPECT_EQ(kept.receive().status, 200u);
  EXPECT_EQ(told("GET /echo HTT"), "408 the header came too slowly");
  kept.send(question("GET", "/echo")); // it has waited longer than a header may take
  EXPECT_EQ(kept.receive().status, 200u);
}

// given: silence before a request, within a header without a limit of its own, within a body / expected: the end
TEST(http_service, silence) {
  service_double service({.idle = 50ms});
  for (const auto& text :
       {std::string(), std::string("GET /ec"), question("POST", "/echo", "Content-Length: 3\r\n") + "a"}) {
    web_client x(service.port());
    x.send(text);
    EXPECT_EQ(x.receive_all(), "");
  }
}

// given: as many connections as may be, who read streams, and one more; then they go / expected: 503; their places
TEST(http_service, connections) {
  service_double service({.connections = 3, .of_one_address = 2});
  std::vector<web_client> all;
  for (const auto* from : {"127.0.0.1", "127.0.0.1", "127.0.0.2"}) {
    all.emplace_back(service.port(), from);
    all.back().send(question("GET", "/stream"));
    EXPECT_THAT(all.back().receive_until("first\n"), HasSubstr("first"));
  }
  for (const auto* from : {"127.0.0.1", "127.0.0.3"}) {
    web_client more(service.port(), from);
    const auto reply = more.receive();
    EXPECT_EQ(reply.status, 503u);
    EXPECT_EQ(reply.body, "there are too many connections; try later");
    EXPECT_EQ(reply.headers.at("Connection"), "close");
    EXPECT_EQ(more.receive_all(), "");
  }
  EXPECT_EQ(service.readers(), 3);
  all.clear();
  EXPECT_TRUE(eventually([&] { return service.readers() == 0; }));
  web_client x(service.port());
  x.send(question("GET", "/echo"));
  EXPECT_EQ(x.receive().status, 200u);
}

// given: 1,000 connections that say nothing / expected: who asks is answered
TEST(http_service, a_thousand_idle_connections) {
  service_double service({.connections = 1100, .of_one_address = 1100});
  std::vector<web_client> idle;
  for (int i = 0; i < 1000; ++i)
    idle.emplace_back(service.port());
  web_client x(service.port());
  x.send(question("GET", "/echo"));
  EXPECT_EQ(x.receive().status, 200u);
  idle.back().send(question("GET", "/echo"));
  EXPECT_EQ(idle.back().receive().status, 200u);
}

// given: an answer that comes piece by piece / expected: each at once, as a chunk; then another request on the
// connection, also one that was sent meanwhile
TEST(http_service, streams) {
  service_double service;
  web_client x(service.port());
  x.send(question("GET", "/stream"));
  EXPECT_THAT(x.receive_until(chunk("first\n")), HasSubstr("Transfer-Encoding: chunked"));
  service.add("a\n");
  EXPECT_EQ(x.receive_until("a\n\r\n"), chunk("a\n"));
  x.send(question("POST", "/echo", "Content-Length: 3\r\n") + "now");
  service.add("b\n");
  EXPECT_EQ(x.receive_until("b\n\r\n"), chunk("b\n"));
  service.end();
  EXPECT_THAT(x.receive_until("POST 0 now"), StartsWith("0\r\n\r\nHTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(service.readers(), 0);
}

// given: the same asked as HTTP/1.0, as HEAD, and of a service that wants an end / expected: no chunks, but the end of
// the connection; the header alone; as the first
TEST(http_service, streams_without_chunks) {
  service_double service;
  const auto all = [&](const std::string& text) {
    web_client x(service.port());
    x.send(text);
    const auto before = x.receive_until("first\n");
    service.add("a\n");
    service.end();
    return before + x.receive_all();
  };
  EXPECT_THAT(all("GET /stream HTTP/1.0\r\n\r\n"), AllOf(EndsWith("\r\n\r\nfirst\na\n"), Not(HasSubstr("chunked"))));
  web_client x(service.port());
  x.send(question("HEAD", "/stream") + question("GET", "/echo"));
  EXPECT_THAT(x.receive_until("GET 0 "), AllOf(HasSubstr("chunked"), Not(HasSubstr("first"))));
  service.last = true;
  EXPECT_THAT(all(question("GET", "/stream")), AllOf(EndsWith("\r\n\r\nfirst\na\n"), HasSubstr("Connection: close")));
  EXPECT_EQ(service.readers(), 0);
}

// given: readers of streams who hang up while nothing comes, also behind another request / expected: what feeds them is
// let go of
TEST(http_service, readers_who_go) {
  service_double service;
  for (const auto& more : {std::string(), question("GET", "/echo")}) {
    web_client x(service.port());
    x.send(question("GET", "/stream"));
    EXPECT_THAT(x.receive_until("first\n"), HasSubstr("first"));
    x.send(more);
    EXPECT_EQ(service.readers(), 1);
    { const auto gone = std::move(x); }
    EXPECT_TRUE(eventually([&] { return service.readers() == 0; }));
  }
}

// given: a reader who takes nothing, while more comes than the system keeps / expected: it is cut off when it has taken
// nothing for `idle`, or is too far behind
TEST(http_service, readers_who_take_nothing) {
  for (const bool far_behind : {false, true}) {
    service_double service({.idle = far_behind ? 60'000ms : 100ms});
    if (!far_behind)
      service.max_behind = 1 << 30;
    web_client x(service.port(), "127.0.0.1", 4096);
    x.send(question("GET", "/stream"));
    EXPECT_THAT(x.receive_until("first\n"), HasSubstr("first"));
    for (int i = 0; i < 40; ++i)
      service.add(std::string(100'000, 'x'));
    EXPECT_TRUE(eventually([&] { return service.readers() == 0; }));
    std::size_t bytes = 0;
    for (std::string some; !(some = x.receive_some()).empty();)
      bytes += some.size();
    EXPECT_LT(bytes, 4'000'000u);
  }
}

// given: TLS / expected: answers, streams, a request behind a stream, who hangs up is seen; no TLS is no answer
TEST(http_service, over_tls) {
  const own_folder folder;
  const auto pem = make_certificate((folder / "tls").string(), "DNS:localhost");
  service_double service({.header = 5s}, {pem, pem});
  http_client client({true, "localhost", service.port()}, make_http_trust(pem));
  for (int i = 0; i < 2; ++i) {
    const auto reply = client.ask({"GET", "/echo"}, {}, {});
    ASSERT_TRUE(reply) << reply.error();
    EXPECT_EQ(reply->body, "GET 0 ");
  }
  std::jthread ender([&] {
    EXPECT_TRUE(eventually([&] { return service.readers() == 1; }));
    service.add("a\n");
    service.end();
  });
  const auto streamed = client.ask({"GET", "/stream"}, {}, {});
  ASSERT_TRUE(streamed) << streamed.error();
  EXPECT_EQ(streamed->body, "first\na\n");
  const auto behind = client.ask({"GET", "/echo"}, {}, {});
  ASSERT_TRUE(behind) << behind.error();
  EXPECT_EQ(behind->body, "GET 0 ");

  std::stop_source stop;
  std::jthread leaver([&] {
    EXPECT_TRUE(eventually([&] { return service.readers() == 1; }));
    stop.request_stop();
  });
  {
    http_client goes({true, "localhost", service.port()}, make_http_trust(pem));
    EXPECT_FALSE(goes.ask({"GET", "/stream"}, {}, stop.get_token()));
  }
  EXPECT_TRUE(eventually([&] { return service.readers() == 0; }));
  web_client plain(service.port());
  plain.send(question("GET", "/echo"));
  EXPECT_THAT(plain.receive_all(), Not(HasSubstr("HTTP")));
  EXPECT_TRUE(service.certificate_ends_within(48h));
  EXPECT_FALSE(service.certificate_ends_within(1h));
}

// given: a port that is taken / expected: one line
TEST(http_service, a_port_that_is_taken) {
  service_double service;
  asio::io_context context;
  struct : http_answerer {
    std::optional<http_reply> refusal(const http_head&) override { return std::nullopt; }
    asio::awaitable<http_reply> answer(const http_head&, std::string) override { co_return http_reply(); }
    http_reply error(unsigned status, const std::string& line) override { return text_reply(status, line); }
  } other;
  try {
    http_service second(context, {asio::ip::address_v4::loopback(), service.port()}, {}, other, {});
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_EQ(e.what(), "cannot serve on 127.0.0.1:" + std::to_string(service.port()) + ": Address already in use");
  }
}

} // namespace
} // namespace parcae
