#include "runtime/market/feed.hpp"

#include "protocols/base/input_file.hpp"
#include "runtime/market/market_file.hpp"
#include "runtime/market/web_place.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace parcae {

class price_feed::implementation {
public:
  implementation(feed_options options, std::function<void(const feed_report&)> on_quotes) :
      options_(std::move(options)), on_quotes_(std::move(on_quotes)) {
    if (is_web_url(options_.source))
      web_.emplace(options_.source, options_.authorities);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

private:
  using clock = std::chrono::steady_clock;

  void run(const std::stop_token& stop) {
    feed_book book(options_.pools, web_ ? shown_url(options_.source) : options_.source, clock::now(), options_.rules);
    std::mutex mutex; // nobody notifies: only a stop ends the pause early
    std::condition_variable_any pause;
    for (auto next = clock::now(); !stop.stop_requested();) {
      const auto reading = read(stop);
      if (stop.stop_requested())
        return;
      on_quotes_(book.hear(reading, clock::now()));
      next = std::max(next + options_.every, clock::now());
      std::unique_lock held(mutex);
      pause.wait_until(held, stop, next, [] { return false; });
    }
  }

  tl::expected<std::string, std::string> read(const std::stop_token& stop) {
    if (web_)
      return web_->ask({}, options_.limits, stop);
    try {
      return contents_of(options_.source, options_.limits.body_bytes);
    } catch (const input_error& e) {
      return tl::unexpected(std::string(e.what()));
    }
  }

  const feed_options options_;
  const std::function<void(const feed_report&)> on_quotes_;
  std::optional<web_place> web_; ///< of a URL; the thread's
  std::jthread thread_;          ///< the last: ends before what it uses goes
};

price_feed::price_feed(feed_options options, std::function<void(const feed_report&)> on_quotes) :
    implementation_(std::make_unique<implementation>(std::move(options), std::move(on_quotes))) {}

price_feed::~price_feed() = default;

} // namespace parcae
