#include "gpu/gateway/gateway.hpp"

#include "gpu/gateway/pipeline_link.hpp"
#include "gpu/gateway/pipelines.hpp"
#include "gpu/gateway/request_meter.hpp"
#include "protocols/base/crash_stack.hpp"
#include "protocols/base/locks.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace parcae {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr auto tick = 100ms;
constexpr auto report_pause = 1s;

std::uint64_t drawn() {
  std::random_device draw;
  return (std::uint64_t{draw()} << 32) | draw();
}

/// Carries the machines: links call them, and they the links, under one lock. No message waits for another thread.
class serving_gateway final : public gateway {
public:
  serving_gateway(executor_options options, data_port& port) :
      options_(std::move(options)), port_(port),
      book_({},
            {.on_token = [this](auto id, auto, auto token) { tell_token(id, token); },
             .on_end = [this](auto id, auto why) { tell_end(id, why); }},
            drawn() << 32),
      pipelines_(book_, {.connect = [this](auto i) { links_[i]->connect(); },
                         .cut = [this](auto i) { links_[i]->cut(); },
                         .send = [this](auto i, const auto& x) { links_[i]->send(x); }}),
      thread_([this] { run(); }) {}

  ~serving_gateway() override {
    {
      const lock held(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    thread_.join();
    std::vector<std::unique_ptr<pipeline_link>> links;
    {
      const lock held(mutex_);
      pipelines_.close();
      pipelines_.route(0, {}, now());
      tell_all();
      links.swap(links_);
    }
  }

  void want_snapshot() override {}

  std::shared_ptr<const job_specification> job() const override {
    const lock held(mutex_);
    return job_;
  }

  bool serves() const override {
    const lock held(mutex_);
    return pipelines_.any_ready();
  }

  std::uint64_t begin(request_wish x, std::shared_ptr<request_listener> tells) override {
    const lock held(mutex_);
    const auto prompt = static_cast<std::uint32_t>(x.prompt.size());
    const auto id = job_ ? book_.add(std::move(x), now()) : std::nullopt;
    const auto at = now_ms();
    if (job_)
      meter_.came(at, prompt);
    if (!id) {
      ++meter_.refused;
      return 0;
    }
    clients_[*id] = {std::move(tells), at, 0, prompt};
    pipelines_.look(now());
    tell_all();
    return *id;
  }

  bool turns_away() override {
    if (!is_full_)
      return false;
    ++turned_away_;
    return true;
  }

  void cancel(std::uint64_t id) override {
    std::shared_ptr<request_listener> gone; // not destroyed under the lock
    const lock held(mutex_);
    if (const auto x = clients_.find(id); x != clients_.end()) {
      gone = std::move(x->second.tells);
      clients_.erase(x);
    }
    pipelines_.gone(id, now());
    tell_all();
  }

  std::size_t requests() const override {
    const lock held(mutex_);
    return book_.size();
  }

  void note_problem(std::string line) override {
    const lock held(mutex_);
    problem_ = std::move(line);
  }

private:
  struct piece_of_news {
    std::shared_ptr<request_listener> to;
    std::uint32_t token;
    std::optional<request_end> end; ///< instead of a token
  };
  struct client {
    std::shared_ptr<request_listener> tells;
    double told_ms = 0; ///< its last token, or when it came
    std::uint32_t tokens = 0;
    std::uint32_t prompt = 0; ///< positions
  };

  void obey(gateway_command x) override {
    const lock held(mutex_);
    commands_.push_back(std::move(x));
    changed_.notify_all();
  }

  static double now_ms() { return std::chrono::duration<double, std::milli>(steady::now().time_since_epoch()).count(); }
  static std::uint64_t now() { return static_cast<std::uint64_t>(now_ms()); }

  void run() {
    use_crash_stack();
    auto reports = steady::now() + report_pause;
    while (auto x = next()) {
      std::vector<std::unique_ptr<pipeline_link>> over; // their threads may wait for the lock
      std::optional<routed> answer;
      {
        const lock held(mutex_);
        if (!x->has_value())
          tick_all();
        else if (auto* told = std::get_if<route>(&**x))
          handle(*told, over);
        else
          handle(std::get<forget>(**x), over);
        tell_all();
        if (routed_ && (x->has_value() || steady::now() >= reports)) {
          reports = steady::now() + report_pause;
          answer = report_now();
        }
      }
      if (answer)
        options_.report_to(std::move(*answer));
    }
  }

  /// The next command, or none, as it is time for a tick. Nothing: it is to end.
  std::optional<std::optional<gateway_command>> next() {
    lock held(mutex_);
    const auto until = steady::now() + tick;
    while (!ended_ && commands_.empty() && steady::now() < until)
      held.wait_until(changed_, until);
    if (ended_)
      return std::nullopt;
    std::optional<gateway_command> result;
    if (!commands_.empty()) {
      result = std::move(commands_.front());
      commands_.pop_front();
    }
    return std::optional(std::move(result));
  }

  void tick_all() NEEDS_LOCK(mutex_) {
    pipelines_.tick(now());
    const auto turned_away = turned_away_.exchange(0);
    if (job_)
      meter_.turned_away(now_ms(), turned_away);
  }

  using links = std::vector<std::unique_ptr<pipeline_link>>;

  void handle(route& x, links& over) NEEDS_LOCK(mutex_) {
    if (routed_ && routed_->job != x.job)
      forget_job(over);
    const bool is_known = routed_ && routed_->current == x.current && routed_->token == x.token &&
                          routed_->target == x.target; // of sizes a new manager may know others
    if (is_known)
      return;
    const auto& job = x.specification;
    if (!job_) // it stays as it is: who has read a tokenizer for it need not do so again
      job_ = std::make_shared<const job_specification>(job);
    auto stops = job.serve.stop_tokens;
    std::ranges::sort(stops);
    book_.set_limits({job.serve.queue, job.serve.wait_ms, std::move(stops)});
    cut_all(over);
    const auto& grid = x.target;
    const bool can_be = grid.participants.size() >= grid.ranks() && grid.depth > 0 && !x.sizes.empty() &&
                        x.sizes.back() <= pass_frame::max_rows;
    const auto width = can_be ? grid.width : 0;
    for (std::uint32_t d = 0; d < width; ++d)
      links_.push_back(make_link(x, d));
    pipelines_.route(width,
                     {.depth = grid.depth,
                      .batch = std::min<std::uint32_t>(job.serve.batch, pass_frame::max_draws),
                      .chunk = job.serve.chunk,
                      .sizes = x.sizes},
                     now());
    routed_ = std::move(x);
  }

  void handle(const forget& x, links& over) NEEDS_LOCK(mutex_) {
    if (routed_ && routed_->job == x.job)
      forget_job(over);
  }

  void cut_all(links& over) NEEDS_LOCK(mutex_) {
    pipelines_.route(0, {}, now());
    std::ranges::move(std::exchange(links_, {}), std::back_inserter(over));
  }

  void forget_job(links& over) NEEDS_LOCK(mutex_) {
    pipelines_.close();
    cut_all(over);
    routed_.reset();
    job_ = nullptr;
    meter_ = {};
    problem_.clear();
  }

  std::unique_ptr<pipeline_link> make_link(const route& x, std::uint32_t number) {
    const auto& grid = x.target;
    const auto end = [&](pass_end which, std::uint32_t stage) {
      const auto rank = grid.rank(number, stage);
      return pass_call{x.job, x.current, x.token, rank, grid.participants[rank], which};
    };
    // A link that was replaced may still have something to say.
    const auto as_one_of_these = [this, number](const pipeline_link& link, auto&& f) {
      const lock held(mutex_);
      if (number < links_.size() && links_[number].get() == &link)
        f();
      tell_all();
    };
    return std::make_unique<pipeline_link>(
        port_, end(pass_end::rows, 0), end(pass_end::tokens, grid.depth - 1),
        pass_bounds{x.specification.context(), x.specification.model.vocabulary},
        pipeline_link::listener{
            .on_connected =
                [=, this](pipeline_link& link) {
                  as_one_of_these(link, [&] { pipelines_.connected(number, drawn(), now()); });
                },
            .on_answer =
                [=, this](pipeline_link& link, const pass_answer& answer) {
                  as_one_of_these(link, [&] { pipelines_.answered(number, answer, now()); });
                },
            .on_end =
                [=, this](pipeline_link& link) { as_one_of_these(link, [&] { pipelines_.broke(number, now()); }); }});
  }

  routed report_now() NEEDS_LOCK(mutex_) {
    auto figures = meter_.figures(now_ms());
    figures.queued = static_cast<std::uint32_t>(book_.queue().size());
    figures.running = static_cast<std::uint32_t>(book_.size() - book_.queue().size());
    figures.recomputed = pipelines_.counts().repeated;
    figures.broken = pipelines_.counts().broken;
    std::vector<std::uint64_t> cached;
    for (std::uint32_t i = 0; i < pipelines_.count(); ++i)
      cached.push_back(pipelines_.cached_in(i));
    return {.job = routed_->job,
            .current = routed_->current,
            .pipelines = routed_->target.width,
            .requests = figures,
            .problem = problem_,
            .cached = std::move(cached),
            .answered = meter_.newest()};
  }

  // The book's, which is called with the lock held.

  void tell_token(std::uint64_t id, std::uint32_t token) {
    const auto x = clients_.find(id);
    if (x == clients_.end())
      return;
    const auto at = now_ms();
    auto& to = x->second;
    meter_.token(at, at - to.told_ms, to.tokens++ == 0);
    to.told_ms = at;
    news_.push_back({to.tells, token, {}});
  }

  void tell_end(std::uint64_t id, request_end why) {
    const auto x = clients_.find(id);
    if (x == clients_.end())
      return;
    const auto to = std::move(x->second);
    clients_.erase(x);
    if (why == request_end::length || why == request_end::stop)
      meter_.answered(now_ms(), {to.prompt, to.tokens});
    else
      ++(why == request_end::unserved ? meter_.refused : meter_.failed);
    news_.push_back({to.tells, 0, why});
  }

  /// After each call of the machines: the next pass is on its way by then, and who hears of this one may take a core.
  void tell_all() NEEDS_LOCK(mutex_) {
    for (const auto& x : news_)
      if (x.end)
        x.to->on_end(*x.end);
      else
        x.to->on_token(x.token);
    news_.clear();
    is_full_ = job_ && book_.is_full();
  }

  const executor_options options_;
  data_port& port_;
  mutable mutex mutex_;
  std::condition_variable changed_;
  std::deque<gateway_command> commands_; ///< all below under the mutex
  bool ended_ = false;
  std::optional<route> routed_; ///< the newest; none: of no job
  std::shared_ptr<const job_specification> job_;
  std::string problem_;
  links links_; ///< by pipeline
  std::map<std::uint64_t, client> clients_;
  std::vector<piece_of_news> news_; ///< of the call in progress
  request_meter meter_;
  request_book book_;
  pipelines pipelines_;
  std::atomic<bool> is_full_ = false;          ///< the queue, after the last call of the machines; without the mutex
  std::atomic<std::uint64_t> turned_away_ = 0; ///< since the last tick; without the mutex
  std::thread thread_;                         ///< last: uses all of the above
};

} // namespace

std::unique_ptr<gateway> make_gateway(executor_options options, data_port& port) {
  return std::make_unique<serving_gateway>(std::move(options), port);
}

} // namespace parcae
