#include "runtime/node/device_watch.hpp"

#include "gpu/device/device.hpp"
#include "protocols/base/locks.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

class watched_executor final : public executor {
public:
  watched_executor(executor_options options, const make_executor& make, std::function<void(const std::string&)> lost,
                   std::chrono::milliseconds limit) :
      on_(*options.on),
      lost_(std::move(lost)), limit_(limit) {
    options.report_to = [this, pass = std::move(options.report_to)](report x) {
      look(x);
      pass(std::move(x));
    };
    thread_ = std::thread([this] { run(); });
    work_ = make(std::move(options));
  }

  ~watched_executor() override {
    work_.reset(); // watched, too: it may take as long as a call that never returns
    {
      const lock held(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void want_snapshot() override { work_->want_snapshot(); }

  void submit(command x) override {
    {
      const lock held(mutex_);
      if (const auto* a = std::get_if<activate>(&x))
        current_ = a->next;
      // Another generation's ABORT does not interrupt the step that is computed.
      if (const auto* a = std::get_if<abort_generation>(&x); a && a->current == current_ && !due_)
        due_ = steady::now() + limit_;
    }
    changed_.notify_one();
    work_->submit(std::move(x));
  }

private:
  void look(const report& x) {
    if (const auto* a = std::get_if<aborted>(&x)) {
      const lock held(mutex_);
      if (a->current == current_)
        due_.reset();
    }
    const auto* f = std::get_if<failed>(&x);
    if (!f || f->kind != failure::computation)
      return;
    try { // too little memory for a model, say, leaves the device as it was
      on_.compute().record();
    } catch (const device_error& e) {
      say(f->what + " (" + e.what() + ")");
    }
  }

  void run() {
    lock held(mutex_);
    while (!ended_) {
      if (!due_)
        held.wait(changed_);
      else if (steady::now() < *due_)
        held.wait_until(changed_, *due_);
      else {
        due_.reset();
        const auto why = "a call did not return within " + std::to_string(limit_.count()) + " ms after generation " +
                         std::to_string(current_.value) + " was aborted";
        held.give_back();
        say(why);
        held.take_again();
      }
    }
  }

  void say(const std::string& why) {
    std::call_once(said_, [&] { lost_(on_.facts().place + " is lost: " + why); });
  }

  device& on_;
  const std::function<void(const std::string&)> lost_;
  const std::chrono::milliseconds limit_;
  std::once_flag said_;
  mutex mutex_;
  std::condition_variable changed_;
  generation current_ GUARDED_BY(mutex_);                    ///< activated last
  std::optional<steady::time_point> due_ GUARDED_BY(mutex_); ///< its ABORT is to be answered until then
  bool ended_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<executor> work_;
  std::thread thread_;
};

} // namespace

std::unique_ptr<executor> make_watched_executor(executor_options options, const make_executor& make,
                                                std::function<void(const std::string&)> lost,
                                                std::chrono::milliseconds limit) {
  if (!options.on)
    return make(std::move(options));
  return std::make_unique<watched_executor>(std::move(options), make, std::move(lost), limit);
}

} // namespace parcae
