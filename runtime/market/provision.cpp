#include "runtime/market/provision.hpp"

#include "protocols/base/printable.hpp"
#include "runtime/market/hook_program.hpp"
#include "runtime/market/market_file.hpp"
#include "runtime/market/web_place.hpp"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

namespace parcae {

class provisioner::implementation {
public:
  implementation(provision_options options, std::function<void(const provision_answer&)> on_answer) :
      options_(std::move(options)), on_answer_(std::move(on_answer)) {
    if (is_web_url(options_.hook))
      web_.emplace(options_.hook, options_.authorities);
    else
      require_program(options_.hook);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  void want(provision_request x) {
    const std::lock_guard held(mutex_);
    wanted_ = std::move(x);
    ++state_.wanted;
    changed_.notify_one();
  }

private:
  using clock = std::chrono::steady_clock;

  static void require_program(const std::filesystem::path& path) {
    if (!std::filesystem::is_regular_file(path) || access(path.c_str(), X_OK) != 0)
      throw std::runtime_error("the hook " + printable(path.string(), 300) +
                               " is no program that can be run, and no http(s) URL");
  }

  void run(const std::stop_token& stop) {
    std::unique_lock held(mutex_);
    while (!stop.stop_requested()) {
      const auto next = next_call(state_, options_.pace);
      const auto has_changed = [this, seen = state_.wanted] { return state_.wanted != seen; };
      if (!next)
        changed_.wait(held, stop, has_changed);
      else if (clock::now() < *next)
        changed_.wait_until(held, stop, *next, has_changed);
      else
        call(held, stop);
    }
  }

  /// Without the lock but for what it begins and ends with.
  void call(std::unique_lock<std::mutex>& held, const std::stop_token& stop) {
    const auto said = wanted_;
    const auto number = state_.wanted;
    held.unlock();
    const auto began = clock::now();
    auto answer = ask(said, stop).and_then([&](const std::string& text) { return hook_answer(text, said); });
    const auto ended = clock::now();
    if (!stop.stop_requested())
      on_answer_(answer ? provision_answer{said.request, std::move(*answer), {}}
                        : provision_answer{said.request, {}, "the hook " + name() + " failed: " + answer.error()});
    held.lock();
    called(state_, number, answer.has_value(), began, ended);
  }

  tl::expected<std::string, std::string> ask(const provision_request& x, const std::stop_token& stop) {
    const auto text = hook_request(x, options_.manager);
    const auto limit = options_.pace.call;
    if (!web_)
      return ask_program(options_.hook, text, limit, max_hook_answer, stop);
    return web_->ask(text, {std::min(limit, std::chrono::milliseconds(10'000)), limit, limit, max_hook_answer}, stop);
  }

  std::string name() const { return web_ ? shown_url(options_.hook) : printable(options_.hook, 200); }

  const provision_options options_;
  const std::function<void(const provision_answer&)> on_answer_;
  std::optional<web_place> web_; ///< of a URL; the thread's
  std::mutex mutex_;
  std::condition_variable_any changed_; ///< what is wanted
  provision_request wanted_;            ///< under the mutex
  hook_state state_;                    ///< under the mutex
  std::jthread thread_;                 ///< the last: ends before what it uses goes
};

provisioner::provisioner(provision_options options, std::function<void(const provision_answer&)> on_answer) :
    implementation_(std::make_unique<implementation>(std::move(options), std::move(on_answer))) {}

provisioner::~provisioner() = default;

void provisioner::want(provision_request x) {
  implementation_->want(std::move(x));
}

} // namespace parcae
