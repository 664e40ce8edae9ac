#include "runtime/web/server.hpp"

#include "protocols/base/as_result.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

namespace parcae {

namespace {

namespace asio = boost::asio;

web_head head_of(const http_head& x) {
  web_head result;
  result.method = x.method;
  result.target = x.target;
  if (x.count("Host") == 1) // of several nobody knows which one counts for whom
    result.host = x.header("Host");
  result.origin = x.header("Origin");
  result.fetch_site = x.header("Sec-Fetch-Site");
  result.authorization = x.header("Authorization");
  result.type = x.header("Content-Type");
  result.last_event_id = x.header("Last-Event-ID");
  return result;
}

http_reply reply_of(const web_answer& x) {
  http_reply result{x.status,
                    {{"Content-Type", x.type},
                     {"Cache-Control", "no-store"},
                     {"Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'none'; "
                                                 "frame-ancestors 'none'; object-src 'none'"},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"}},
                    x.body};
  result.headers.insert(result.headers.end(), x.headers.begin(), x.headers.end());
  if (x.file)
    result.file = {x.file->descriptor(), x.file};
  return result;
}

} // namespace

class web_server::implementation final : public http_answerer {
public:
  implementation(asio::io_context& context, const asio::ip::tcp::endpoint& where, const http_identity& identity,
                 web_routes& routes, const web_limits& limits) :
      context_(context),
      routes_(routes), limits_(limits), at_work_(routes.clusters().size()), workers_(limits.at_work * at_work_.size()),
      service_(context, where, identity, *this,
               {.header_bytes = limits.header_bytes,
                .body_bytes = limits.body_bytes,
                .connections = limits.connections,
                .of_one_address = limits.of_one_address,
                .idle = limits.idle}) {}

  ~implementation() override { workers_.join(); }

  const http_service& service() const { return service_; }

private:
  std::optional<http_reply> refusal(const http_head& head) override {
    try {
      routes_.admit(head_of(head), head.local, std::chrono::steady_clock::now());
      return std::nullopt;
    } catch (const web_error& e) {
      return reply_of(answer_of(e));
    }
  }

  asio::awaitable<http_reply> answer(const http_head& head, std::string body) override {
    web_answer answer;
    co_await make_answer(head_of(head), std::move(body), answer);
    auto result = reply_of(answer);
    if (answer.events) {
      result.stream = events(*answer.events);
      result.is_last = true;
    }
    co_return result;
  }

  http_reply error(unsigned status, const std::string& line) override {
    return reply_of(answer_of(web_error(status, line)));
  }

  asio::awaitable<void> make_answer(web_head head, std::string body, web_answer& answer) {
    try {
      auto result = routes_.take(head, std::move(body), std::chrono::steady_clock::now());
      if (result.later) {
        auto& at_work = at_work_[result.cluster];
        if (at_work >= limits_.at_work)
          throw web_error(503, "too many questions wait for the manager; try again later");
        ++at_work;
        co_await work(std::move(result.later), answer);
        --at_work;
      } else {
        answer = std::move(result.now);
      }
    } catch (const web_error& e) {
      answer = answer_of(e);
    }
  }

  /// On a thread that may wait.
  asio::awaitable<void> work(std::function<web_answer()> what, web_answer& answer) {
    asio::steady_timer done(context_, asio::steady_timer::time_point::max());
    std::shared_ptr<web_answer> made = std::make_shared<web_answer>();
    asio::post(workers_, [&done, made, what = std::move(what), &context = context_] {
      try {
        *made = what();
      } catch (const web_error& e) {
        *made = answer_of(e);
      } catch (const std::exception& e) {
        *made = answer_of(web_error(500, e.what()));
      }
      asio::post(context, [&done] { done.cancel(); });
    });
    co_await done.async_wait(as_result);
    answer = std::move(*made);
  }

  /// First those that the log has (which bounds them), then each as it comes. Who is too far behind comes back, and
  /// goes on where it was.
  std::shared_ptr<http_stream> events(const events_wanted& wanted) {
    const auto is_wanted = [job = wanted.job](const web_event& x) { return job == 0 || x.job == 0 || x.job == job; };
    auto& board = routes_.clusters()[wanted.cluster].board;
    std::vector<http_stream::piece> before;
    for (const auto& x : board.events().after(wanted.after))
      if (is_wanted(x))
        before.push_back(x.text);
    const auto result =
        std::make_shared<http_stream>(context_.get_executor(), std::move(before), limits_.behind_bytes, ": \n\n");
    result->source = board.listen([stream = std::weak_ptr(result), is_wanted](const web_event& x) {
      if (const auto to = stream.lock(); to && is_wanted(x))
        to->add(x.text);
    });
    return result;
  }

  asio::io_context& context_;
  web_routes& routes_;
  const web_limits limits_;
  std::vector<std::size_t> at_work_; ///< by cluster: one that is away holds up no other
  asio::thread_pool workers_;
  http_service service_;
};

web_server::web_server(asio::io_context& context, const asio::ip::tcp::endpoint& where, const http_identity& identity,
                       web_routes& routes, web_limits limits) :
    implementation_(std::make_unique<implementation>(context, where, identity, routes, limits)) {}

web_server::~web_server() = default;

std::uint16_t web_server::port() const {
  return implementation_->service().port();
}

bool web_server::certificate_ends_within(std::chrono::seconds time) const {
  return implementation_->service().certificate_ends_within(time);
}

} // namespace parcae
