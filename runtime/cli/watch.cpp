#include "runtime/cli/watch.hpp"

#include "protocols/base/printable.hpp"
#include "runtime/cli/terminal.hpp"
#include "runtime/process/client.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <functional>
#include <optional>

namespace parcae {

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto tick_interval = 500ms; // ages go on while no answer comes

template <class Duration>
std::int64_t microseconds_of(Duration x) {
  return std::chrono::duration_cast<std::chrono::microseconds>(x).count();
}

bool is_over(const job_status& x) {
  return x.state != "running" && x.state != "queued";
}

/// One run of `watch`. All but the manager's answers happens on the thread that calls run().
class watcher {
public:
  watcher(const manager_access& manager, std::uint64_t job) :
      waits_for_(manager.managers.size() > 1 ? "; waits for a standby to take over" : "; waits for its return"),
      job_(job) {
    client_.emplace(manager);
    if (!can_draw())
      return;
    signals_.emplace(context_, SIGINT, SIGTERM, SIGHUP); // from here on they only wake run()
    // Before ncurses, which leaves it alone only if it is caught already: else it ignores it while it draws.
    signals_->add(SIGTSTP);
    wait_for_signal();
    if ((screen_ = terminal::open())) {
      signals_->add(SIGWINCH); // ncurses has a handler of its own, which this replaces
      // Opened anew: asio makes it non-blocking, which would outlast this process in what the shell reads from.
      boost::system::error_code ignored; // without keys there are still signals
      input_.assign(::open("/dev/tty", O_RDONLY | O_CLOEXEC), ignored);
      wait_for_key();
      wait_for_tick();
    }
  }

  void run() {
    client_->follow({.job = job_, .failures_from = UINT64_MAX}, ask_interval,
                    {.heard =
                         [this, job = job_](status_reply x) mutable {
                           if (job == 0)
                             job = job_to_watch(x);
                           auto next = next_request(x, job);
                           asio::post(context_, [this, job, x = std::move(x)]() mutable { heard(job, std::move(x)); });
                           return next;
                         },
                     .away = [this](std::string why) { asio::post(context_, [this, why] { be_away(why); }); },
                     .lost = [this](std::string why) { asio::post(context_, [this, why] { end_with(why); }); }});
    context_.run();
    client_.reset(); // no more answers
    screen_.reset();
    if (signal_ != 0) {
      signals_.reset();
      std::raise(signal_);
    }
    if (!problem_.empty())
      throw client_error(problem_);
  }

private:
  void heard(std::uint64_t job, status_reply x) {
    if (status_ && job_ != 0 && x.manager_life != status_->manager_life)
      return end_with("the manager that answers now is another one, whose job " + std::to_string(job_) +
                      " is not this one; go on with `parcae submit --resume`");
    job_ = job;
    if (!status_ || !away_.empty()) // measured once: the time shown for an event must not flicker
      wall_ahead_us_ = microseconds_of(std::chrono::system_clock::now().time_since_epoch()) - x.now_us;
    away_.clear();
    status_ = std::move(x);
    heard_at_ = std::chrono::steady_clock::now();
    const auto* known = find_job(*status_, job_);
    if (screen_)
      draw();
    else
      for (const auto& line : plain_.lines_of(*status_, job_, now()))
        std::printf("%s\n", printable(line).c_str());
    if (std::fflush(stdout) != 0) // nobody reads any more
      context_.stop();
    if (known && is_over(*known)) {
      end(*known);
      context_.stop();
    }
  }

  void be_away(const std::string& why) {
    away_ = why + waits_for_;
    if (screen_)
      return draw();
    if (status_)
      std::printf("%s\n", printable(plain_.away(now(), away_)).c_str());
    std::fflush(stdout);
  }

  void end_with(const std::string& problem) {
    problem_ = problem;
    context_.stop();
  }

  void end(const job_status& job) {
    screen_.reset();
    if (job.state != "done")
      problem_ = "job " + std::to_string(job.id) + " " + job.state +
                 (job.problem.empty() || job.problem == job.state ? "" : ": " + job.problem);
    std::printf("%s\n", printable_lines(ending_of(job)).c_str());
  }

  moment now() const {
    const auto us = status_->now_us + microseconds_of(std::chrono::steady_clock::now() - heard_at_);
    const auto wall = std::time(nullptr);
    std::tm local{};
    localtime_r(&wall, &local);
    return {us, us + wall_ahead_us_ + 1'000'000 * static_cast<std::int64_t>(local.tm_gmtoff)};
  }

  void draw() {
    if (screen_ && status_)
      screen_->draw(render(*status_, job_, now(), screen_->size(), away_));
  }

  void wait_for_signal() {
    signals_->async_wait([this](const boost::system::error_code& error, int number) {
      if (error)
        return;
      if (number == SIGWINCH) {
        draw();
      } else if (number == SIGTSTP) {
        if (screen_)
          screen_->suspend();
        kill(getpid(), SIGSTOP);
        draw(); // continued
      } else {
        signal_ = number;
        return context_.stop();
      }
      wait_for_signal();
    });
  }

  void wait_for_key() {
    input_.async_read_some(asio::buffer(&key_, 1), [this](const boost::system::error_code& error, std::size_t) {
      if (error) // the terminal is gone
        return;
      if (key_ == 'q' || key_ == 'Q')
        return context_.stop();
      wait_for_key();
    });
  }

  void wait_for_tick() {
    tick_.expires_after(tick_interval);
    tick_.async_wait([this](const boost::system::error_code& error) {
      if (error)
        return;
      draw();
      wait_for_tick();
    });
  }

  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()}; ///< answers will come
  std::optional<asio::signal_set> signals_;
  asio::posix::stream_descriptor input_{context_};
  char key_ = 0;
  asio::steady_timer tick_{context_};
  std::optional<manager_client> client_;
  std::unique_ptr<terminal> screen_; ///< null: plain lines
  plain_watch plain_;
  const std::string waits_for_;
  std::string away_; ///< why no answer comes; empty: it does
  std::uint64_t job_;
  std::optional<status_reply> status_;
  std::chrono::steady_clock::time_point heard_at_;
  std::int64_t wall_ahead_us_ = 0; ///< of the manager's monotonic clock
  int signal_ = 0;
  std::string problem_;
};

} // namespace

void watch(const manager_access& manager, std::uint64_t job) {
  watcher(manager, job).run();
}

} // namespace parcae
