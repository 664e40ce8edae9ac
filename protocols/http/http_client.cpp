#include "protocols/http/http_client.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

namespace parcae {

namespace asio = boost::asio;

class http_client::implementation {
public:
  using outcome = tl::expected<http_answer, std::string>;

  implementation(http_server server, http_trust trust) :
      connection_(io_.get_executor(), std::move(server), std::move(trust)) {}

  outcome ask(const http_request& request, const http_limits& limits, const std::stop_token& stop,
              std::span<std::byte> into) {
    // Shared: a stop leaves the coroutine where it is, to be destroyed with the io_context.
    const auto result = std::make_shared<outcome>(tl::unexpected(std::string("it was stopped")));
    if (stopped_ || stop.stop_requested())
      return *result;
    asio::co_spawn(io_, connection_.ask(request, limits, into), [result](const std::exception_ptr& e, outcome x) {
      if (e)
        std::rethrow_exception(e);
      *result = std::move(x);
    });
    io_.restart();
    const std::stop_callback on_stop(stop, [this] { io_.stop(); });
    io_.run();
    stopped_ = stop.stop_requested();
    return std::move(*result);
  }

private:
  asio::io_context io_{1};
  http_connection connection_;
  bool stopped_ = false; ///< in the midst of a question, perhaps
};

http_client::http_client(http_server server, http_trust trust) :
    implementation_(std::make_unique<implementation>(std::move(server), std::move(trust))) {}

http_client::~http_client() = default;

tl::expected<http_answer, std::string> http_client::ask(const http_request& request, const http_limits& limits,
                                                        const std::stop_token& stop, std::span<std::byte> into) {
  return implementation_->ask(request, limits, stop, into);
}

} // namespace parcae
