#include "runtime/node/executor_log.hpp"

#include "protocols/values/log_context.hpp"

#include <spdlog/spdlog.h>

#include <utility>

namespace parcae {

namespace {

/// Within a job the log keeps showing the old generation's steps until the new one has committed.
void begin_lines_of(job_id job) {
  auto& context = current_log_context();
  if (context.job.exchange(job.value) != job.value)
    context.generation = context.steps = 0;
}

struct command_logger {
  const slot_id& self;

  // What fails from now on is not the last job's.
  void operator()(const load& x) const { begin_lines_of(x.job); }

  void operator()(const prepare& x) const {
    const auto& all = x.target.participants;
    std::uint32_t rank = 0;
    while (rank < all.size() && all[rank].slot != self)
      ++rank;
    begin_lines_of(x.job);
    if (rank < x.target.ranks())
      spdlog::info("{}: prepare generation {}, {}×{}, as stage {} of pipeline {}", to_string(self), x.next.value,
                   x.target.width, x.target.depth, x.target.stage_of(rank), x.target.pipeline_of(rank));
    else
      spdlog::info("{}: prepare generation {}, to send shards", to_string(self), x.next.value);
  }

  void operator()(const activate& x) const {
    current_log_context().generation = x.next.value;
    current_log_context().steps = x.at.steps;
    spdlog::info("{}: generation {} begins at step {}", to_string(self), x.next.value, x.at.steps);
  }

  void operator()(const abort_generation& x) const {
    if (x.current.value != 0) // else it only asks for the inventory
      spdlog::info("{}: abort generation {}", to_string(self), x.current.value);
  }

  void operator()(const checkpoint& x) const {
    current_log_context().job = x.job.value;
    current_log_context().generation = x.at.by.value;
    current_log_context().steps = x.at.steps;
  }

  void operator()(const restore& x) const { spdlog::info("{}: read the checkpoint {}", to_string(self), x.folder); }

  template <class Other>
  void operator()(const Other&) const {}
};

struct report_logger {
  const slot_id& self;

  void operator()(const stopped& x) const {
    spdlog::info("{}: generation {} stopped at step {}", to_string(self), x.current.value, x.at.steps);
  }

  void operator()(const failed& x) const {
    // A broken connection is what peers see of a loss: nothing failed here. Errors are told to the manager.
    const auto level = x.kind == failure::communication                            ? spdlog::level::info
                       : x.kind == failure::data || x.kind == failure::computation ? spdlog::level::err
                                                                                   : spdlog::level::warn;
    spdlog::log(level, "{}: {}", to_string(self), x.what);
  }

  void operator()(const checkpointed& x) const {
    if (!x.problem.empty())
      spdlog::error("{}: no checkpoint of step {}: {}", to_string(self), x.at.steps, x.problem);
    else if (x.layers.empty())
      spdlog::warn("{}: nothing of step {} is here, so nothing was written to disk", to_string(self), x.at.steps);
    else
      spdlog::info("{}: {} layers of step {} are on disk at {}", to_string(self), x.layers.size(), x.at.steps,
                   x.folder);
  }

  void operator()(const restored& x) const {
    spdlog::log(x.problem.empty() ? spdlog::level::info : spdlog::level::err, "{}: {}", to_string(self),
                x.problem.empty() ? "the checkpoint is read" : x.problem);
  }

  template <class Other>
  void operator()(const Other&) const {}
};

class logged_executor : public executor {
public:
  logged_executor(executor_options options, const make_executor& make) : self_(options.self) {
    options.report_to = [self = self_, pass = std::move(options.report_to)](report x) {
      std::visit(report_logger{self}, x);
      pass(std::move(x));
    };
    options.on_commit = [](const version& at, const commit_result&) {
      current_log_context().generation = at.by.value;
      current_log_context().steps = at.steps;
    };
    work_ = make(std::move(options));
  }

  void submit(command x) override {
    std::visit(command_logger{self_}, x);
    work_->submit(std::move(x));
  }
  void want_snapshot() override { work_->want_snapshot(); }

private:
  const slot_id self_;
  std::unique_ptr<executor> work_;
};

} // namespace

std::unique_ptr<executor> make_logged_executor(executor_options options, const make_executor& make) {
  return std::make_unique<logged_executor>(std::move(options), make);
}

} // namespace parcae
