#pragma once

// A gateway and workers within one process, over real sockets; the test says what a manager would.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/gateway/gateway.hpp"
#include "gpu/training/stage_executor.hpp"
#include "tests/support/eventually.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae::rig {

/// Else the test, or the bench, is over.
inline void require(bool holds, const std::string& what) {
  if (!holds)
    throw std::runtime_error("not true: " + what);
}

inline job_specification served_job() {
  job_specification x;
  x.name = "small";
  x.kind = "serve";
  x.optimizer.kind = "none";
  x.model = {.kind = "gpt", .layers = 3, .width = 32, .heads = 2, .sequence = 96, .vocabulary = 64};
  x.serve.cache_bytes = 1 << 20;
  x.serve.batch = 8;
  x.serve.chunk = 8;
  return x;
}

/// What came of a request.
class stream final : public request_listener {
public:
  void on_token(std::uint32_t token) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(token);
    changed_.notify_all();
  }
  void on_end(request_end why) override {
    const std::lock_guard lock(mutex_);
    require(!end_, "a request ends once");
    end_ = why;
    changed_.notify_all();
  }

  std::optional<request_end> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return end_.has_value(); });
    return end_;
  }
  std::vector<std::uint32_t> tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  bool is_over() {
    const std::lock_guard lock(mutex_);
    return end_.has_value();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> tokens_;
  std::optional<request_end> end_;
};

class service_rig {
public:
  explicit service_rig(job_specification job = served_job()) : job_(std::move(job)) { start_gateway(); }

  void start_gateway() {
    gateway_.reset();
    gateway_port_ = make_data_port("127.0.0.1");
    executor_options options;
    options.self = {"gate", {9}, 0};
    options.report_to = [this](const report& x) {
      const std::lock_guard lock(mutex_);
      if (const auto* y = std::get_if<routed>(&x))
        routed_ = *y;
    };
    gateway_ = make_gateway(std::move(options), *gateway_port_);
    if (route_)
      gateway_->submit(*route_);
  }

  gateway& front() { return *gateway_; }
  const std::vector<std::uint32_t>& sizes() const { return sizes_; }
  std::size_t workers() const { return workers_.size(); }

  /// That has loaded the model.
  void add_worker(std::function<void(const fault_point&)> faults = {}) {
    auto& x = *workers_.emplace_back(std::make_unique<worker>());
    x.port = make_data_port("127.0.0.1");
    x.where = {{"w" + std::to_string(++lives_), {lives_}, 0}, "127.0.0.1", x.port->port()};
    executor_options options;
    options.self = x.where.slot;
    options.on_fault_point = std::move(faults);
    options.report_to = [&x](report y) { x.came(std::move(y)); };
    x.executor = make_stage_executor(std::move(options), *x.port);
    x.executor->submit(load{job_of_it, job_});
    const auto loaded = x.wait_for<parcae::loaded>();
    require(loaded.has_value(), "the model is loaded");
    sizes_ = loaded->passes.sizes;
  }

  /// As if its process were killed.
  void kill(std::size_t i) {
    workers_[i].reset();
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  /// The first D · P workers are its ranks. The one before has ended. Caches stay where they are.
  void begin(std::uint32_t width, std::uint32_t depth) { begin(planned(width, depth, {})); }

  /// Likewise; caches of the one before go to where they are needed: pipelines go on with those of the same number, the
  /// first ones with others', too. `order`: of workers, of which the first are ranks.
  void move(std::uint32_t width, std::uint32_t depth, const std::vector<std::size_t>& order) {
    auto x = planned(width, depth, order);
    add_caches(x);
    begin(std::move(x));
  }

  /// Positions that were computed twice, as the gateway said last.
  std::uint64_t recomputed() { return last_routed().requests.recomputed; }
  /// What the gateway said last.
  routed last_routed() {
    const std::lock_guard lock(mutex_);
    return routed_;
  }

  /// As above, without waiting for ACTIVE.
  void prepare_move(std::uint32_t width, std::uint32_t depth, const std::vector<std::size_t>& order) {
    auto x = planned(width, depth, order);
    add_caches(x);
    tell(x);
    expect_all<prepared>("PREPARED");
    tell(activate{x.next, {}});
  }

  /// By its stop bit.
  void stop() {
    tell_ranks(parcae::stop{{generations_}});
    expect_ranks<stopped>("STOPPED");
    no_route();
  }

  void abort() {
    tell(abort_generation{{generations_}});
    expect_all<aborted>("ABORTED");
    no_route();
  }

  std::optional<failed> failure_of(std::size_t i) { return workers_[i]->wait_for<failed>(); }
  std::vector<served> all_served() {
    std::vector<served> result;
    for (auto* x : participants(true)) {
      auto said = x->wait_for<served>();
      require(said.has_value(), "SERVED of " + to_string(x->where.slot));
      result.push_back(std::move(*said));
    }
    return result;
  }
  void forget_reports() {
    for (auto& x : workers_)
      x->clear();
  }

private:
  static constexpr job_id job_of_it{5};

  /// Of the next generation, without caches.
  prepare planned(std::uint32_t width, std::uint32_t depth, std::vector<std::size_t> order) {
    while (order.size() < workers_.size())
      order.push_back(order.size());
    prepare x;
    x.next = {++generations_};
    x.token = {generations_, 7};
    x.job = job_of_it;
    x.specification = job_;
    x.target.width = width;
    x.target.depth = depth;
    const auto layers = static_cast<std::uint32_t>(job_.model.layers + 2);
    for (std::uint32_t s = 0; s <= depth; ++s)
      x.target.first_layer.push_back(layers * s / depth);
    require(x.target.ranks() <= workers_.size(), "there are workers enough");
    for (std::uint32_t i = 0; i < x.target.ranks(); ++i)
      x.target.participants.push_back(workers_.at(order[i])->where);
    return x;
  }

  void add_caches(prepare& x) {
    auto& all = x.target.participants;
    const auto number_of = [&](const participant& y) {
      return static_cast<std::uint32_t>(std::ranges::find(all, y) - all.begin());
    };
    const auto is_there = [&](const participant& y) {
      return std::ranges::any_of(workers_, [&](const auto& w) { return w->where == y; });
    };
    const auto stage_of = [](const placement& grid, std::uint32_t layer) {
      return static_cast<std::uint32_t>(std::ranges::upper_bound(grid.first_layer, layer) - grid.first_layer.begin()) -
             1;
    };
    for (std::uint32_t d = 0; d < serving_.width; ++d)
      for (std::uint32_t layer = 0; layer < serving_.first_layer.back(); ++layer) {
        const auto& from = serving_.participants[serving_.rank(d, stage_of(serving_, layer))];
        const auto to = x.target.rank(d % x.target.width, stage_of(x.target, layer));
        if (all[to] == from || !is_there(from))
          continue;
        if (number_of(from) == all.size())
          all.push_back(from);
        x.caches.push_back({layer, layer + 1, number_of(from), to});
      }
  }

  void begin(prepare x) {
    tell(x);
    expect_all<prepared>("PREPARED");
    tell(activate{x.next, {}});
    expect_ranks<active>("ACTIVE");
    route_ = route{x.job, x.next, x.token, job_, x.target, sizes_};
    serving_ = x.target;
    gateway_->submit(*route_);
    require(eventually([&] { return gateway_->job() != nullptr; }), "the gateway knows the job");
  }

  struct worker {
    std::unique_ptr<data_port> port;
    participant where;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<report> reports;
    std::unique_ptr<parcae::executor> executor; ///< last: reports into the above

    void came(report x) {
      const std::lock_guard lock(mutex);
      reports.push_back(std::move(x));
      changed.notify_all();
    }
    void clear() {
      const std::lock_guard lock(mutex);
      reports.clear();
    }
    /// The first of that kind, which goes, with all before it.
    template <class T>
    std::optional<T> wait_for() {
      std::unique_lock lock(mutex);
      std::optional<T> result;
      changed.wait_for(lock, std::chrono::seconds(30), [&] {
        while (!reports.empty() && !result) {
          if (auto* x = std::get_if<T>(&reports.front()))
            result = std::move(*x);
          reports.pop_front();
        }
        return result.has_value();
      });
      return result;
    }
  };

  /// Those of the newest PREPARE that are there: all, or its ranks.
  std::vector<worker*> participants(bool only_ranks) {
    std::vector<worker*> result;
    const auto count = only_ranks ? newest_.ranks() : newest_.participants.size();
    for (std::size_t i = 0; i < count; ++i)
      for (auto& x : workers_)
        if (x->where == newest_.participants[i])
          result.push_back(x.get());
    return result;
  }

  void tell(const command& x) {
    if (const auto* p = std::get_if<prepare>(&x))
      newest_ = p->target;
    for (auto* y : participants(false))
      y->executor->submit(x);
  }
  void tell_ranks(const command& x) {
    for (auto* y : participants(true))
      y->executor->submit(x);
  }

  template <class T>
  void expect_all(const char* what) {
    for (auto* x : participants(false))
      require(x->template wait_for<T>().has_value(), what + std::string(" of ") + to_string(x->where.slot));
  }
  template <class T>
  void expect_ranks(const char* what) {
    for (auto* x : participants(true))
      require(x->template wait_for<T>().has_value(), what + std::string(" of ") + to_string(x->where.slot));
  }

  void no_route() {
    route_->target = {};
    gateway_->submit(*route_);
  }

  const job_specification job_;
  std::uint64_t lives_ = 0, generations_ = 0;
  placement newest_, serving_; ///< of the newest PREPARE, and of the newest that served
  std::vector<std::uint32_t> sizes_;
  std::optional<route> route_;
  std::mutex mutex_;
  routed routed_; ///< under the mutex
  std::vector<std::unique_ptr<worker>> workers_;
  std::unique_ptr<data_port> gateway_port_;
  std::unique_ptr<gateway> gateway_;
};

} // namespace parcae::rig
