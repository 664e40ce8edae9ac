#include "runtime/cloud/metadata_client.hpp"

#include "protocols/base/text.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace parcae {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);
constexpr std::uint64_t most_body = 64 * 1024;
constexpr std::uint32_t most_header = 8 * 1024;
constexpr std::size_t most_value = 256; // of a header that is looked at

std::string reason_of(const beast::error_code& e, const metadata_question& question) {
  if (e == beast::error::timeout)
    return "there is no answer within " + text_of_duration(question.limit);
  if (e == http::error::body_limit || e == http::error::header_limit || e == http::error::buffer_overflow)
    return "its answer is too long";
  if (e == http::error::partial_message || e == http::error::end_of_stream)
    return "its answer ends too early";
  if (e.category() == http::make_error_code(http::error::bad_version).category())
    return "its answer is no HTTP (" + e.message() + ")";
  return e.message();
}

unusable failure_of(const beast::error_code& e, const metadata_question& question) {
  return {reason_of(e, question), false};
}

metadata_answer answer_of(http::response<http::string_body>&& x) {
  const auto header = [&](beast::string_view name) {
    const auto value = x[name].substr(0, most_value);
    return std::string(value.data(), value.size());
  };
  metadata_answer result;
  result.status = x.result_int();
  result.date = header("Date");
  result.etag = header("ETag");
  result.flavor = header("Metadata-Flavor");
  result.token_ttl = header("X-aws-ec2-metadata-token-ttl-seconds");
  result.body = std::move(x.body());
  return result;
}

http::request<http::string_body> request_of(const metadata_question& x, const asio::ip::tcp::endpoint& server) {
  http::request<http::string_body> result(http::string_to_verb(x.method), x.target, 11);
  result.set(http::field::host,
             server.address().is_v6() ? "[" + server.address().to_string() + "]" : server.address().to_string());
  result.set(http::field::user_agent, "parcae");
  result.set(http::field::connection, "close");
  for (const auto& [name, value] : x.headers)
    result.set(name, value);
  result.body() = x.body;
  result.prepare_payload();
  return result;
}

} // namespace

asio::awaitable<std::variant<metadata_answer, unusable>> ask_metadata_server(asio::ip::tcp::endpoint server,
                                                                             metadata_question question) {
  beast::tcp_stream stream(co_await asio::this_coro::executor);
  stream.expires_after(question.limit); // all of it together
  if (const auto [failed] = co_await stream.async_connect(server, as_result); failed)
    co_return failure_of(failed, question);
  const auto request = request_of(question, server);
  if (const auto [failed, sent] = co_await http::async_write(stream, request, as_result); failed)
    co_return failure_of(failed, question);
  http::response_parser<http::string_body> parser;
  parser.body_limit(most_body);
  parser.header_limit(most_header);
  beast::flat_buffer buffer(2 * most_header);
  if (const auto [failed, read] = co_await http::async_read(stream, buffer, parser, as_result); failed)
    co_return failure_of(failed, question);
  co_return answer_of(parser.release());
}

} // namespace parcae
