#pragma once

// A gateway and workers within one process, over real sockets; the test says what a manager would.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/gateway/gateway.hpp"
#include "gpu/training/stage_executor.hpp"
#include "tests/support/eventually.hpp"

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

namespace parcae::testing {

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
    options.report_to = [](const report&) {};
    gateway_ = make_gateway(std::move(options), *gateway_port_);
    if (route_)
      gateway_->submit(*route_);
  }

  gateway& front() { return *gateway_; }
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

  /// The first D · P workers are its ranks. The one before has ended.
  void begin(std::uint32_t width, std::uint32_t depth) {
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
    ranks_ = width * depth;
    require(ranks_ <= workers_.size(), "there are workers enough");
    for (std::uint32_t i = 0; i < ranks_; ++i)
      x.target.participants.push_back(workers_[i]->where);
    tell_ranks(x);
    expect_all<prepared>("PREPARED");
    tell_ranks(activate{x.next, {}});
    expect_all<active>("ACTIVE");
    route_ = route{x.job, x.next, x.token, job_, x.target, sizes_};
    gateway_->submit(*route_);
    require(eventually([&] { return gateway_->job() != nullptr; }), "the gateway knows the job");
  }

  /// By its stop bit.
  void stop() {
    tell_ranks(parcae::stop{{generations_}});
    expect_all<stopped>("STOPPED");
    no_route();
  }

  void abort() {
    tell_ranks(abort_generation{{generations_}});
    expect_all<aborted>("ABORTED");
    no_route();
  }

  std::optional<failed> failure_of(std::size_t i) { return workers_[i]->wait_for<failed>(); }
  std::optional<served> next_served(std::size_t i) { return workers_[i]->wait_for<served>(); }
  void forget_reports() {
    for (auto& x : workers_)
      x->clear();
  }

private:
  static constexpr job_id job_of_it{5};

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

  void tell_ranks(const command& x) {
    for (std::uint32_t i = 0; i < ranks_ && i < workers_.size(); ++i)
      workers_[i]->executor->submit(x);
  }

  template <class T>
  void expect_all(const char* what) {
    for (std::uint32_t i = 0; i < ranks_ && i < workers_.size(); ++i)
      require(workers_[i]->wait_for<T>().has_value(), what + std::string(" of rank ") + std::to_string(i));
  }

  void no_route() {
    route_->target = {};
    gateway_->submit(*route_);
  }

  const job_specification job_;
  std::uint64_t lives_ = 0, generations_ = 0;
  std::uint32_t ranks_ = 0;
  std::vector<std::uint32_t> sizes_;
  std::optional<route> route_;
  std::vector<std::unique_ptr<worker>> workers_;
  std::unique_ptr<data_port> gateway_port_;
  std::unique_ptr<gateway> gateway_;
};

} // namespace parcae::testing
