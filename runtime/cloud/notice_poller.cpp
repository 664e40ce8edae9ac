#include "runtime/cloud/notice_poller.hpp"

#include "protocols/base/as_result.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/base/text.hpp"
#include "runtime/cloud/metadata_client.hpp"
#include "runtime/cloud/poll_schedule.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <stdexcept>
#include <thread>

namespace parcae {

namespace {

namespace asio = boost::asio;

std::optional<asio::ip::tcp::endpoint> endpoint_in(std::string_view text) {
  const auto place = parse_host_and_port(text);
  if (!place || place->port.value_or(0) == 0)
    return std::nullopt;
  boost::system::error_code unknown;
  // A name would have to be looked up, which has no limit in time.
  const auto address = asio::ip::make_address(place->host, unknown);
  if (unknown)
    return std::nullopt;
  return asio::ip::tcp::endpoint(address, *place->port);
}

wall_time wall_clock() {
  return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

} // namespace

std::string problem_of(const cloud_options& x) {
  return endpoint_in(x.server) ? ""
                               : "\"" + x.server + "\" is no numeric ADDRESS:PORT such as " + cloud_options{}.server;
}

class notice_poller::implementation {
public:
  implementation(cloud_options options, cloud_listener listener, const poll_pace& pace) :
      options_(std::move(options)), listener_(std::move(listener)), pace_(pace) {
    const auto server = endpoint_in(options_.server);
    if (!server)
      throw std::invalid_argument(problem_of(options_));
    server_ = *server;
    asio::co_spawn(io_, begin(), asio::detached);
    thread_ = std::thread([this] { run(); });
  }

  ~implementation() {
    io_.stop();
    thread_.join();
  }

  void acknowledge(std::chrono::milliseconds limit) {
    const auto event = [&] {
      const lock held(mutex_);
      return event_;
    }();
    if (event.empty())
      return;
    auto answer = asio::co_spawn(io_, ask_metadata_server(server_, acknowledgement_of(event, limit)), asio::use_future);
    if (answer.wait_for(limit) != std::future_status::ready)
      return spdlog::warn("the notice was not acknowledged within its time");
    const auto x = answer.get();
    const auto* response = std::get_if<metadata_answer>(&x);
    if (response && response->status / 100 == 2)
      spdlog::info("notice acknowledged: the machine may be taken");
    else
      spdlog::warn("the notice was not acknowledged: {}",
                   response ? "HTTP status " + std::to_string(response->status) : std::get<unusable>(x).why);
  }

private:
  void run() {
    try {
      io_.run();
    } catch (const std::exception& e) { // for want of memory; training goes on
      spdlog::error("notices of the cloud are not looked for any more: {}", e.what());
    }
  }

  asio::awaitable<void> begin() {
    auto of = options_.of;
    if (of == cloud::auto_)
      of = cloud_of_dmi(options_.dmi).value_or(cloud::auto_);
    if (of == cloud::auto_)
      of = co_await whose_server();
    if (of == cloud::none) {
      if (options_.of == cloud::auto_)
        spdlog::info("this machine is of no cloud that is known: only SIGTERM is a notice");
      co_return;
    }
    spdlog::info("notices of {} are looked for at {}", to_string(of), options_.server);
    for (auto& series : poll_series(of, std::chrono::steady_clock::now()))
      asio::co_spawn(io_, follow(std::move(series)), asio::detached);
  }

  /// The cloud whose first question it answers.
  asio::awaitable<cloud> whose_server() {
    for (const auto candidate : {cloud::aws, cloud::gcp, cloud::azure}) {
      const auto first = next_poll(poll_series(candidate, {}).front(), pace_);
      const auto answer = co_await ask_metadata_server(server_, first.question);
      const auto* response = std::get_if<metadata_answer>(&answer);
      if (!response) // it will not talk to others either
        break;
      if (!std::holds_alternative<unusable>(read_answer(first.about, *response, {}, wall_clock())))
        co_return candidate;
    }
    co_return cloud::none;
  }

  asio::awaitable<void> follow(poll_state series) {
    asio::steady_timer timer(io_);
    for (;;) {
      const auto next = next_poll(series, pace_);
      timer.expires_at(next.at);
      co_await timer.async_wait(as_result);
      const auto asked = std::chrono::steady_clock::now();
      const auto answer = co_await ask_metadata_server(server_, next.question);
      const auto news = heard(series, pace_, next.about, answer, asked, std::chrono::steady_clock::now(), wall_clock());
      tell(series, next.question, news);
    }
  }

  void tell(const poll_state& series, const metadata_question& question, const poll_news& news) {
    if (!news.problem.empty() && std::has_single_bit(series.failures)) // less and less often
      spdlog::warn("cannot see notices of the cloud, {} {} at {}: {}; trying again", question.method,
                   question.target.substr(0, question.target.find('?')), options_.server, news.problem);
    if (news.recovered)
      spdlog::info("notices of the cloud can be seen again");
    if (news.risk) {
      if (news.risk->empty())
        spdlog::info("the cloud sees no risk any more");
      else
        spdlog::warn("at risk: {}", *news.risk);
      listener_.risk(*news.risk);
    }
    if (news.notice) {
      {
        const lock held(mutex_);
        event_ = news.notice->event;
      }
      listener_.notice(news.notice->left, news.notice->reason);
    }
  }

  const cloud_options options_;
  asio::ip::tcp::endpoint server_; ///< not changed once the thread runs
  const cloud_listener listener_;
  const poll_pace pace_;
  mutex mutex_;
  std::string event_ GUARDED_BY(mutex_); ///< of the notice last told; empty: nothing to acknowledge
  asio::io_context io_{1};
  std::thread thread_;
};

notice_poller::notice_poller(cloud_options options, cloud_listener listener) :
    notice_poller(std::move(options), std::move(listener), poll_pace{}) {}

notice_poller::notice_poller(cloud_options options, cloud_listener listener, const poll_pace& pace) :
    implementation_(std::make_unique<implementation>(std::move(options), std::move(listener), pace)) {}

notice_poller::~notice_poller() = default;

void notice_poller::acknowledge(std::chrono::milliseconds limit) {
  implementation_->acknowledge(limit);
}

} // namespace parcae
