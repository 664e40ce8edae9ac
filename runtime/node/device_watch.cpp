#include "runtime/node/device_watch.hpp"

#include "gpu/device/device.hpp"
#include "protocols/base/locks.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

/// What has to be done by when, since that generation was aborted.
struct due {
  generation of;
  std::chrono::milliseconds limit;
  steady::time_point at = steady::now() + limit;
};

class watched_executor final : public executor {
public:
  watched_executor(executor_options options, const make_executor& make, std::function<void(const std::string&)> lost,
                   const device_limits& limits) :
      on_(*options.on),
      lost_(std::move(lost)), limits_(limits) {
    options.report_to = [this, pass = std::move(options.report_to)](report x) {
      look(x);
      pass(std::move(x));
    };
    thread_ = std::thread([this] { run(); });
    below_ = make(std::move(options));
  }

  ~watched_executor() override {
    below_.reset(); // watched, too: it may take as long as a call that never returns
    {
      const lock held(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void want_snapshot() override { below_->want_snapshot(); }

  void submit(command x) override {
    {
      const lock held(mutex_);
      if (const auto* a = std::get_if<activate>(&x))
        current_ = a->next;
      // Another generation's ABORT does not interrupt what is done.
      if (const auto* a = std::get_if<abort_generation>(&x); a && a->current == current_ && !answer_)
        answer_.emplace(due{a->current, a->current == committed_ ? limits_.answer : limits_.first_answer});
    }
    changed_.notify_one();
    below_->submit(std::move(x));
  }

private:
  void look(const report& x) {
    if (const auto* a = std::get_if<aborted>(&x))
      note_answer(a->current);
    else if (const auto* p = std::get_if<progress>(&x))
      note_commit(p->current);
    else if (const auto* f = std::get_if<failed>(&x)) {
      try { // too little memory for a model, say, leaves the device as it was
        on_.compute().record();
      } catch (const device_error& e) {
        say(f->what + " (" + e.what() + ")");
      }
    }
  }

  void note_commit(generation x) {
    const lock held(mutex_);
    committed_ = x;
  }

  // The device may still be at work. If it never ends, what is given to it from now on does not, either.
  void note_answer(generation x) {
    {
      const lock held(mutex_);
      if (!answer_ || answer_->of != x)
        return;
    }
    try {
      auto end = on_.compute().record(); // a call: answer_ stands until it returns
      const lock held(mutex_);
      answer_.reset();
      work_.emplace(due{x, limits_.work});
      work_end_ = std::move(end);
    } catch (const device_error& e) {
      say(std::string("after generation ") + std::to_string(x.value) + " was aborted (" + e.what() + ")");
    }
    changed_.notify_one();
  }

  void run() {
    lock held(mutex_);
    while (!ended_) {
      const auto now = steady::now();
      const auto after = [](const due& x) {
        return " after generation " + std::to_string(x.of.value) + " was aborted";
      };
      std::string why;
      if (answer_ && answer_->at <= now) {
        why = "a call did not return within " + std::to_string(answer_->limit.count()) + " ms" + after(*answer_);
        answer_.reset();
      } else if (work_ && work_->at <= now) {
        why = "it was still at work " + std::to_string(limits_.work.count()) + " ms" + after(*work_);
        work_.reset();
        const auto end = std::exchange(work_end_, nullptr);
        held.give_back();
        if (is_done(*end))
          why.clear();
        held.take_again();
      } else if (answer_ || work_) {
        held.wait_until(changed_, std::min(answer_ ? answer_->at : work_->at, work_ ? work_->at : answer_->at));
      } else {
        held.wait(changed_);
      }
      if (!why.empty()) {
        held.give_back();
        say(why);
        held.take_again();
      }
    }
  }

  static bool is_done(const event& x) {
    try {
      return x.done();
    } catch (const device_error&) {
      return false;
    }
  }

  void say(const std::string& why) {
    std::call_once(said_, [&] { lost_(on_.facts().place + " is lost: " + why); });
  }

  device& on_;
  const std::function<void(const std::string&)> lost_;
  const device_limits limits_;
  std::once_flag said_;
  mutex mutex_;
  std::condition_variable changed_;
  generation current_ GUARDED_BY(mutex_);        ///< activated last: it moves shards, or trains
  generation committed_ GUARDED_BY(mutex_);      ///< that has made a step, the newest
  std::optional<due> answer_ GUARDED_BY(mutex_); ///< to an ABORT of one of these
  std::optional<due> work_ GUARDED_BY(mutex_);   ///< what was given before such an answer
  std::shared_ptr<event> work_end_ GUARDED_BY(mutex_);
  bool ended_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<executor> below_;
  std::thread thread_;
};

} // namespace

std::unique_ptr<executor> make_watched_executor(executor_options options, const make_executor& make,
                                                std::function<void(const std::string&)> lost,
                                                const device_limits& limits) {
  if (!options.on)
    return make(std::move(options));
  return std::make_unique<watched_executor>(std::move(options), make, std::move(lost), limits);
}

} // namespace parcae
