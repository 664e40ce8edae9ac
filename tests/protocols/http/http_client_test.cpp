// Questions to web servers, with TLS and without; objects on the web, read in ranges.

#include "protocols/http/http_client.hpp"
#include "protocols/store/store.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/web_double.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace parcae {
namespace {

namespace http = boost::beast::http;

const http_limits limits{2s, 2s, 5s, 1'000};

struct http_client_test : testing::Test {
  ~http_client_test() override {
    for (const auto& x : files)
      std::filesystem::remove(x);
  }

  /// A PEM file with a certificate for `names` (such as "DNS:localhost") that vouches for itself, and its key.
  std::string certificate(const std::string& names) {
    const auto base = (std::filesystem::temp_directory_path() /
                       ("parcae-tls-" + std::to_string(getpid()) + "-" + std::to_string(files.size())))
                          .string();
    files.push_back(base + ".key");
    files.push_back(base + ".pem");
    return make_certificate(base, names);
  }

  static tl::expected<http_answer, std::string> ask(const std::string& url, const http_trust& trust = nullptr) {
    const auto parsed = parse_http_url(url);
    http_client client(parsed->server, trust);
    return client.ask({"GET", parsed->target}, limits, {});
  }

  std::vector<std::string> files;
};

// given: a server with a certificate of its own making / expected: refused, unless that is trusted, for its name only
TEST_F(http_client_test, certificates_are_checked) {
  const auto pem = certificate("DNS:localhost");
  web_double server([](const auto&) { return web_double::make(200, "hello"); }, pem);
  const auto stranger = ask(server.url());
  ASSERT_FALSE(stranger);
  EXPECT_THAT(stranger.error(), HasSubstr("no TLS with it"));
  const auto trusted = ask(server.url(), make_http_trust(pem));
  ASSERT_TRUE(trusted) << trusted.error();
  EXPECT_EQ(trusted->body, "hello");
  const auto other_name = ask(server.url("127.0.0.1"), make_http_trust(pem));
  ASSERT_FALSE(other_name);
  EXPECT_THAT(other_name.error(), HasSubstr("no TLS with it"));
  EXPECT_THROW(make_http_trust("/no/such/file"), std::runtime_error);
}

// given: questions one after the other / expected: one connection; a server that hung up meanwhile is dialled again
TEST_F(http_client_test, connections_stay) {
  bool close = false;
  web_double server([&](const auto&) {
    auto x = web_double::make(200, "x");
    x.keep_alive(!close);
    return x;
  });
  http_client client(parse_http_url(server.url("127.0.0.1"))->server);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(client.ask({}, limits, {}));
  EXPECT_EQ(server.connections(), 1u);
  close = true;
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(client.ask({}, limits, {}));
  EXPECT_EQ(server.connections(), 3u);
}

// given: bodies to be sent and to be read, larger than there may be, into memory that is too small / expected: whole,
// or refused
TEST_F(http_client_test, bodies_are_bounded) {
  web_double server([&](const auto& x) {
    return web_double::make(200, x.body().empty() ? std::string(1'001, 'x') : std::to_string(x.body().size()));
  });
  http_client client(parse_http_url(server.url("127.0.0.1"))->server);
  const std::vector<std::byte> large(700'000);
  EXPECT_EQ(client.ask({"PUT", "/", {}, large}, limits, {})->body, "700000");
  EXPECT_EQ(client.ask({}, limits, {}).error(), "its answer is too long");
  auto more = limits;
  more.body_bytes = 1'001;
  EXPECT_EQ(client.ask({}, more, {})->body.size(), 1'001u);
  std::vector<std::byte> into(1'001);
  const auto read = client.ask({}, limits, {}, into);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->body_bytes, 1'001u);
  EXPECT_EQ(into.back(), std::byte{'x'});
  into.resize(1'000);
  EXPECT_EQ(client.ask({}, limits, {}, into).error(), "its answer is too long");
}

/// A server of one object that knows ranges, with redirections to it.
web_double::response ranged(const web_double::request& x, const std::string& content, const std::string& tag) {
  if (x.target() == "/moved") {
    auto y = web_double::make(302);
    y.set(http::field::location, "/object?signature=secret");
    return y;
  }
  if (x.target() == "/circle") {
    auto y = web_double::make(302);
    y.set(http::field::location, "/circle");
    return y;
  }
  if (!x.target().starts_with("/object"))
    return web_double::make(404);
  std::size_t from = 0, last = 0;
  if (std::sscanf(std::string(x["Range"]).c_str(), "bytes=%zu-%zu", &from, &last) != 2)
    return web_double::make(200, content);
  auto y = web_double::make(206, content.substr(from, last - from + 1));
  y.set(http::field::content_range,
        "bytes " + std::to_string(from) + "-" + std::to_string(last) + "/" + std::to_string(content.size()));
  y.set(http::field::etag, tag);
  return y;
}

// given: an object on the web, by itself and behind a redirection / expected: its size, and ranges of it; absent, an
// endless redirection, one to plain http, a server without ranges are told
TEST_F(http_client_test, objects_are_read_in_ranges) {
  std::string content(100'000, ' ');
  for (std::size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<char>('a' + i % 26);
  std::string tag = "\"1\"";
  web_double server([&](const auto& x) { return ranged(x, content, tag); });
  const auto base = server.url("127.0.0.1");
  store_options options;
  options.pace.attempts = 2;
  options.pace.first_pause = 1ms;
  options.pace.window_bytes = 1'000;
  for (const auto* path : {"/object", "/moved"}) {
    const auto reader = open_object(base + path, options);
    ASSERT_EQ(reader->size(), content.size());
    std::string part(5'000, ' ');
    for (const std::size_t from : {0u, 95'000u, 26u})
      for (const std::size_t size : {5'000u, 10u, 0u}) {
        reader->read(from, std::as_writable_bytes(std::span(part).first(size)));
        EXPECT_EQ(part.substr(0, size), content.substr(from, size));
      }
  }
  const auto error_of = [&](const std::string& url) {
    return thrown_by<store_error>([&] { open_object(url, options); });
  };
  EXPECT_THAT(error_of(base + "/none"), HasSubstr("is not there"));
  EXPECT_THAT(error_of(base + "/circle"), HasSubstr("more than five times"));
  EXPECT_THAT(error_of("ftp://x"), HasSubstr("must begin with https://"));
  const auto reader = open_object(base + "/moved", options);
  tag = "\"2\"";
  char byte = 0;
  try {
    reader->read(50'000, std::as_writable_bytes(std::span(&byte, 1)));
    FAIL() << "it was replaced";
  } catch (const store_error& e) {
    EXPECT_EQ(e.trouble, store_trouble::damaged);
    EXPECT_THAT(e.what(), testing::Not(HasSubstr("secret")));
  }
  web_double whole([&](const auto&) { return web_double::make(200, content); });
  EXPECT_NE(error_of(whole.url("127.0.0.1") + "/object"), "");
  const auto pem = certificate("DNS:localhost");
  setenv("AWS_CA_BUNDLE", pem.c_str(), 1);
  web_double secure(
      [&](const auto&) {
        auto y = web_double::make(302);
        y.set(http::field::location, base + "/object");
        return y;
      },
      pem);
  EXPECT_THAT(error_of(secure.url() + "/object"), HasSubstr("from https to http"));
}

} // namespace
} // namespace parcae
