#include "runtime/cloud/metadata_client.hpp"

#include "protocols/http/http_connection.hpp"

#include <boost/asio/this_coro.hpp>

namespace parcae {

namespace {

constexpr std::uint64_t max_body = 64 * 1024;
constexpr std::size_t max_value = 256; // of a header that is looked at

metadata_answer answer_of(http_answer&& x) {
  const auto header = [&](std::string_view name) { return std::string(x.header(name).substr(0, max_value)); };
  metadata_answer result;
  result.status = x.status;
  result.date = header("Date");
  result.etag = header("ETag");
  result.flavor = header("Metadata-Flavor");
  result.token_ttl = header("X-aws-ec2-metadata-token-ttl-seconds");
  result.body = std::move(x.body);
  return result;
}

} // namespace

boost::asio::awaitable<std::variant<metadata_answer, unusable>>
ask_metadata_server(boost::asio::ip::tcp::endpoint server, metadata_question question) {
  // g++ 12 destroys an aggregate that is made in the expression of a co_await twice: nothing is made there.
  const auto executor = co_await boost::asio::this_coro::executor;
  http_connection connection(executor, {false, server.address().to_string(), server.port()});
  http_request request{question.method, question.target, question.headers, std::as_bytes(std::span(question.body))};
  request.headers.emplace_back("Connection", "close");
  const http_limits limits{question.limit, question.limit, question.limit, max_body};
  auto answer = co_await connection.ask(request, limits);
  if (!answer)
    co_return unusable{std::move(answer.error()), false};
  co_return answer_of(std::move(*answer));
}

} // namespace parcae
