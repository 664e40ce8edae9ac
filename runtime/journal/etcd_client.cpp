#include "runtime/journal/etcd_client.hpp"

#include "protocols/base/printable.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <openssl/evp.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace parcae {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using std::chrono::steady_clock;

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);
constexpr std::uint64_t most_body = 256 << 20; // all of a journal, in base64
constexpr std::chrono::seconds one_try{1};     // a member that is cut off does not say so
constexpr std::chrono::milliseconds between_rounds{100};

std::string text_of(const asio::ip::tcp::endpoint& x) {
  return to_string(address{x.address().to_string(), x.port()});
}

struct answer {
  beast::error_code failed;
  http::response<http::string_body> response;
};

asio::awaitable<void> converse(beast::tcp_stream& stream, asio::ip::tcp::endpoint member,
                               const http::request<http::string_body>& request, steady_clock::time_point by,
                               answer& result) {
  stream.expires_at(by);
  if (!stream.socket().is_open()) {
    auto [refused] = co_await stream.async_connect(member, as_result);
    if ((result.failed = refused))
      co_return;
    stream.socket().set_option(asio::ip::tcp::no_delay(true), result.failed);
  }
  auto [unsent, sent] = co_await http::async_write(stream, request, as_result);
  if ((result.failed = unsent))
    co_return;
  http::response_parser<http::string_body> parser;
  parser.body_limit(most_body);
  beast::flat_buffer buffer;
  auto [unread, read] = co_await http::async_read(stream, buffer, parser, as_result);
  result.failed = unread;
  result.response = parser.release();
}

// {"error": …, "message": …, "code": …}, or something that is none of etcd's.
std::string refusal_in(const http::response<http::string_body>& x) {
  boost::system::error_code bad;
  const auto said = boost::json::parse(x.body(), bad);
  const auto* all = bad ? nullptr : said.if_object();
  const auto* text = all ? all->if_contains("error") : nullptr;
  const auto line = text && text->is_string() ? std::string(text->as_string()) : x.body();
  return "HTTP status " + std::to_string(x.result_int()) + ", " + printable(line.substr(0, 200));
}

} // namespace

etcd_place parse_etcd_place(std::string_view text) {
  constexpr std::string_view scheme = "etcd://";
  const auto bad = [&](const std::string& why) {
    return std::invalid_argument("\"" + std::string(text) + "\" is no store (" + why +
                                 "): etcd://HOST:PORT,HOST:PORT/NAME, for example etcd://10.0.0.2:2379");
  };
  if (!text.starts_with(scheme))
    throw bad("it does not begin with etcd://");
  auto rest = text.substr(scheme.size());
  etcd_place result{{}, "/parcae/"};
  if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
    const auto name = rest.substr(slash + 1);
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; };
    if (name.empty() || name.size() > 100 || !std::ranges::all_of(name, fits))
      throw bad("NAME has 1 to 100 letters, digits, - and _");
    result.prefix = "/" + std::string(name) + "/";
    rest = rest.substr(0, slash);
  }
  for (std::size_t from = 0; from <= rest.size();) {
    const auto comma = std::min(rest.find(',', from), rest.size());
    try {
      result.members.push_back(parse_address(rest.substr(from, comma - from)));
    } catch (const std::invalid_argument& e) {
      throw bad(e.what());
    }
    from = comma + 1;
  }
  return result;
}

etcd_client::etcd_client(const std::vector<address>& members) {
  std::string problem;
  asio::ip::tcp::resolver names(context_);
  for (const auto& x : members) {
    boost::system::error_code unknown;
    for (const auto& found : names.resolve(x.host, std::to_string(x.port), unknown))
      members_.push_back(found.endpoint());
    if (unknown)
      problem = "no etcd at " + to_string(x) + ": " + unknown.message();
  }
  if (members_.empty())
    throw std::runtime_error(problem);
}

std::string etcd_client::exchange(const std::string& path, const std::string& body, time_point by, refusal& why) {
  if (!stream_)
    stream_ = std::make_unique<beast::tcp_stream>(context_);
  http::request<http::string_body> request(http::verb::post, path, 11, body);
  request.set(http::field::host, text_of(members_[at_]));
  request.set(http::field::content_type, "application/json");
  request.prepare_payload();
  answer got;
  asio::co_spawn(context_, converse(*stream_, members_[at_], request, by, got), asio::detached);
  context_.restart();
  context_.run();
  if (!got.failed && got.response.keep_alive() && got.response.result() == http::status::ok)
    return std::move(got.response.body());
  stream_.reset();
  if (got.failed)
    why = {got.failed == beast::error::timeout ? "no answer" : got.failed.message()};
  else if (got.response.result() == http::status::ok)
    return std::move(got.response.body());
  else
    why = {refusal_in(got.response), http::to_status_class(got.response.result()) == http::status_class::client_error};
  return {};
}

boost::json::object etcd_client::ask(const std::string& path, const boost::json::object& question,
                                     std::chrono::milliseconds limit) {
  const auto body = boost::json::serialize(question);
  const auto end = steady_clock::now() + limit;
  for (std::size_t tries = 1;; ++tries) {
    refusal why;
    const auto text = exchange(path, body, std::min<time_point>(end, steady_clock::now() + one_try), why);
    if (why.why.empty()) {
      boost::system::error_code bad;
      auto result = boost::json::parse(text, bad);
      if (!bad && result.is_object())
        return std::move(result.as_object());
      why = {"what it answers is no JSON object"};
    }
    const auto problem = "etcd at " + text_of(members_[at_]) + ": " + why.why;
    at_ = (at_ + 1) % members_.size();
    stream_.reset();
    const bool round = tries % members_.size() == 0 && tries > members_.size();
    const auto pause = round ? between_rounds : std::chrono::milliseconds(0);
    if (why.final_ || steady_clock::now() + pause >= end)
      throw std::runtime_error(problem);
    std::this_thread::sleep_for(pause);
  }
}

std::string to_base64(std::string_view bytes) {
  std::string result((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const auto* from = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(result.data()), from, static_cast<int>(bytes.size()));
  result.resize(static_cast<std::size_t>(size));
  return result;
}

std::string from_base64(std::string_view text) {
  std::string result(text.size() / 4 * 3 + 1, '\0');
  const auto* from = reinterpret_cast<const unsigned char*>(text.data());
  const auto size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(result.data()), from, static_cast<int>(text.size()));
  const auto padding = text.size() - std::min(text.find('='), text.size());
  if (size < 0 || text.size() % 4 != 0 || padding > 2)
    throw std::runtime_error("a value of etcd is not in base64");
  result.resize(static_cast<std::size_t>(size) - padding);
  return result;
}

} // namespace parcae
