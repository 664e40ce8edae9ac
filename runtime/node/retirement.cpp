#include "runtime/node/retirement.hpp"

#include "gpu/executor/memory_settings.hpp"
#include "protocols/base/text.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace parcae {

namespace {

/// Calls `late` on a thread of its own, unless it is destroyed within the limit.
class time_limit {
public:
  time_limit(std::chrono::milliseconds limit, const std::function<void()>& late) :
      thread_([limit, late](const std::stop_token& in_time) {
        std::mutex mutex;
        std::condition_variable_any never;
        std::unique_lock held(mutex);
        never.wait_for(held, in_time, limit, [] { return false; });
        if (!in_time.stop_requested())
          late();
      }) {}

private:
  std::jthread thread_;
};

class executor_of_one_job final : public executor {
public:
  executor_of_one_job(std::function<std::unique_ptr<executor>()> make, retirement& retired) :
      make_(std::move(make)), retired_(retired), now_(make_()) {}

  void submit(command x) override {
    const lock held(mutex_);
    const bool over = std::holds_alternative<forget>(x);
    if (!now_ && over)
      return; // said again
    if (!now_)
      now_ = make_();
    now_->submit(std::move(x));
    if (over)
      retired_.take(std::move(now_));
  }

  void want_snapshot() override {
    const lock held(mutex_);
    if (now_)
      now_->want_snapshot();
  }

private:
  const std::function<std::unique_ptr<executor>()> make_;
  retirement& retired_;
  mutex mutex_;
  std::unique_ptr<executor> now_ GUARDED_BY(mutex_); ///< null: of a job that is over
};

} // namespace

retirement::retirement(std::chrono::milliseconds limit, std::function<void(const std::string&)> stuck) :
    limit_(limit), stuck_(std::move(stuck)) {}

retirement::~retirement() = default;

void retirement::take(std::unique_ptr<executor> x) {
  const lock held(mutex_);
  std::erase_if(all_, [](auto& y) { return y.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  all_.push_back(std::async(std::launch::async, [this, x = std::move(x)]() mutable {
    {
      const time_limit watch(limit_, [this] {
        stuck_("what the last job computes did not end within " + text_of_duration(limit_) + " of the job's end");
      });
      x.reset();
    }
    give_back_memory();
  }));
}

std::unique_ptr<executor> make_executor_of_one_job(std::function<std::unique_ptr<executor>()> make,
                                                   retirement& retired) {
  return std::make_unique<executor_of_one_job>(std::move(make), retired);
}

} // namespace parcae
