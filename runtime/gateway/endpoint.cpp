#include "runtime/gateway/endpoint.hpp"

#include "protocols/base/crash_stack.hpp"
#include "protocols/base/text.hpp"
#include "runtime/gateway/answering.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <charconv>
#include <future>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace parcae {

namespace asio = boost::asio;

namespace {

http_reply reply_of(unsigned status, std::string body, const char* type = "application/json") {
  return {.status = status,
          .headers = {{"Content-Type", type}, {"Cache-Control", "no-store"}},
          .body = std::make_shared<const std::string>(std::move(body)),
          .file = {},
          .stream = {}};
}

http_reply reply_of(const openai_error& x) {
  auto result = reply_of(x.status, error_body(x));
  if (x.status == 429 || x.status == 503)
    result.headers.emplace_back("Retry-After", x.status == 429 ? "1" : "5");
  if (x.status == 401)
    result.headers.emplace_back("WWW-Authenticate", "Bearer");
  return result;
}

std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Of this machine, by the value of the header Host, or by what Origin has behind its scheme.
bool is_here(std::string_view named) {
  const auto host = parse_host_and_port(named).value_or(host_and_port{}).host;
  boost::system::error_code none;
  return host == "localhost" || asio::ip::make_address(host, none).is_loopback();
}

std::string_view behind_scheme(std::string_view origin) {
  const auto scheme = origin.find("://");
  return scheme == origin.npos ? std::string_view() : origin.substr(scheme + 3);
}

std::string path_of(const http_head& x) {
  return x.target.substr(0, x.target.find('?'));
}

std::optional<openai_call> call_of(const std::string& path) {
  if (path == "/v1/completions")
    return openai_call::completion;
  return path == "/v1/chat/completions" ? std::optional(openai_call::chat) : std::nullopt;
}

/// Whose client waits to be told that it may send its body, or whose body is longer than that.
bool has_body_to_come(const http_head& x, std::uint64_t short_bytes) {
  const auto length = x.header("Content-Length");
  std::uint64_t bytes = 0;
  std::from_chars(length.data(), length.data() + length.size(), bytes);
  return bytes > short_bytes || x.header("Expect") == "100-continue";
}

} // namespace

class endpoint::implementation final : public http_answerer {
public:
  implementation(const asio::ip::tcp::endpoint& where, const http_identity& identity, api_keys keys,
                 const endpoint_limits& limits) :
      keys_(std::move(keys)),
      short_body_bytes_(limits.short_body_bytes), service_(context_, where, identity, *this,
                                                           {.body_bytes = limits.body_bytes,
                                                            .connections = limits.connections,
                                                            .of_one_address = limits.of_one_address,
                                                            .idle = limits.idle,
                                                            .header = limits.header}),
      thread_([this] {
        use_crash_stack();
        context_.run();
      }) {}

  ~implementation() override {
    ask(nullptr, nullptr);
    context_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return service_.port(); }

  /// Instead of `from`; null: whoever is asked.
  void ask(gateway* x, const gateway* from) {
    std::promise<void> done;
    asio::post(context_, [&] {
      if (!from || gateway_ == from) {
        for (const auto& each : std::exchange(answerings_, {}))
          if (const auto one = each.lock())
            one->leave();
        gateway_ = x;
      }
      done.set_value();
    });
    done.get_future().wait();
  }

  void close_doors() {
    asio::post(context_, [this] { closed_ = true; });
  }

private:
  /// Of what there is no place for, a long body is not read.
  std::optional<http_reply> refusal(const http_head& head) override {
    auto result = refusal_of_stranger(head);
    if (!result && head.method == "POST" && call_of(path_of(head)) && has_body_to_come(head, short_body_bytes_) &&
        turns_away())
      result = reply_of(error_of_full_queue());
    return result;
  }

  bool turns_away() { return gateway_ && !closed_ && gateway_->turns_away(); }

  std::optional<http_reply> refusal_of_stranger(const http_head& head) const {
    if (path_of(head) == "/health")
      return std::nullopt;
    if (keys_.asks_for_none()) {
      // Pages of others, in browsers of this machine, call it by a name of theirs, or say where they are from.
      const auto origin = head.header("Origin");
      if (is_here(head.header("Host")) && (origin.empty() || is_here(behind_scheme(origin))))
        return std::nullopt;
      return reply_of(openai_error(403,
                                   "without keys this service is for programs of its own machine, which call it "
                                   "localhost, or by that address",
                                   {}, "not_local"));
    }
    if (keys_.admit(head.header("Authorization")))
      return std::nullopt;
    return reply_of(openai_error(401, "the header Authorization should be \"Bearer KEY\", with a key of this service",
                                 {}, "invalid_api_key"));
  }

  asio::awaitable<http_reply> answer(const http_head& head, std::string body) override {
    std::optional<openai_error> failure;
    try {
      co_return co_await make_answer(head, std::move(body));
    } catch (const openai_error& e) {
      failure = e;
    } catch (const std::exception& e) {
      failure = openai_error(500, e.what());
    }
    co_return reply_of(*failure);
  }

  http_reply error(unsigned status, const std::string& line) override { return reply_of(openai_error(status, line)); }

  asio::awaitable<http_reply> make_answer(const http_head& head, std::string body) {
    const auto path = path_of(head);
    const auto call = call_of(path);
    if (!call && path != "/v1/models" && path != "/health")
      throw openai_error(404, "there is no " + path + ": /v1/completions, /v1/chat/completions, /v1/models, /health");
    if (head.method != (call ? "POST" : "GET"))
      throw openai_error(405, path + " takes " + (call ? "POST" : "GET"));
    if (path == "/health")
      co_return reply_of(gateway_ && !closed_ && gateway_->serves() ? 200 : 503, "{}");
    if (path == "/v1/models")
      co_return reply_of(200, models_body(face()->model().name, now_s()));
    auto reply = co_await generate(*call, std::move(body), head.has_left);
    co_return reply;
  }

  asio::awaitable<http_reply> generate(openai_call call, std::string body, const std::function<bool()>& has_left) {
    if (turns_away()) // before it takes this thread's time, which those need who are answered
      throw error_of_full_queue();
    auto request = parse_generation(call, body);
    const auto asked = face();
    const bool streams = request.stream;
    answer_head head{.call = call,
                     .id = (call == openai_call::chat ? "chatcmpl-" : "cmpl-") + std::to_string(draw_()),
                     .created_s = now_s(),
                     .model = asked->model().name,
                     .seed = request.sampling.seed.value_or(static_cast<std::int64_t>(draw_() >> 1))};
    const auto x =
        std::make_shared<answering>(*gateway_, asked, std::move(request), std::move(head), context_.get_executor());
    std::erase_if(answerings_, [](const auto& y) { return y.expired(); });
    answerings_.push_back(x);
    x->begin();
    if (!streams) {
      auto text = co_await x->whole(has_left);
      co_return reply_of(200, std::move(text));
    }
    co_await x->wait_for_first(has_left);
    auto reply = reply_of(200, {}, "text/event-stream");
    reply.body = nullptr;
    reply.stream = x->stream();
    co_return reply;
  }

  /// Of the job that is served now.
  std::shared_ptr<const model_face> face() {
    if (closed_)
      throw openai_error(503, "this gateway ends; ask the next one", {}, "closed");
    const auto job = gateway_ ? gateway_->job() : nullptr;
    if (!job)
      throw openai_error(503, "no model is served now; try again later", {}, "not_served");
    if (!face_ || face_->job() != job)
      try {
        face_ = std::make_shared<const model_face>(job);
        gateway_->note_problem({});
      } catch (const tokenizer_error& e) {
        gateway_->note_problem(e.what());
        throw openai_error(503, e.what(), {}, "not_served");
      }
    return face_;
  }

  const api_keys keys_;
  const std::uint64_t short_body_bytes_;
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  // Of its thread.
  gateway* gateway_ = nullptr;
  bool closed_ = false;
  std::shared_ptr<const model_face> face_;
  std::vector<std::weak_ptr<answering>> answerings_;
  std::mt19937_64 draw_{(std::uint64_t{std::random_device()()} << 32) | std::random_device()()};
  http_service service_;
  std::thread thread_;
};

endpoint::endpoint(const asio::ip::tcp::endpoint& where, const http_identity& identity, api_keys keys,
                   endpoint_limits limits) :
    implementation_(std::make_unique<implementation>(where, identity, std::move(keys), limits)) {}

endpoint::~endpoint() = default;

std::uint16_t endpoint::port() const {
  return implementation_->port();
}

void endpoint::ask(gateway& x) {
  implementation_->ask(&x, nullptr);
}

void endpoint::let_go(const gateway& x) {
  implementation_->ask(nullptr, &x);
}

void endpoint::close_doors() {
  implementation_->close_doors();
}

namespace {

class asked_gateway final : public executor {
public:
  asked_gateway(std::unique_ptr<gateway> own, endpoint& by) : own_(std::move(own)), by_(by) { by_.ask(*own_); }
  ~asked_gateway() override { by_.let_go(*own_); }

  void submit(command x) override { own_->submit(std::move(x)); }
  void want_snapshot() override {}

private:
  const std::unique_ptr<gateway> own_;
  endpoint& by_;
};

} // namespace

std::unique_ptr<executor> make_asked_gateway(executor_options options, data_port& port, endpoint& x) {
  return std::make_unique<asked_gateway>(make_gateway(std::move(options), port), x);
}

} // namespace parcae
