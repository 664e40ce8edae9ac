#include "gpu/training/stage_training.hpp"

#include "gpu/training/usual_bits.hpp"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

namespace parcae {

stage_training::stage_training(stage_context c) :
    c_(std::move(c)), clock_(c_.first_layer(), c_.last_layer(), c_.options->naps,
                             c_.options->on ? &c_.on.compute() : nullptr, c_.job().threads == 1),
    lead_(c_), parameters_(c_), sums_(c_, [this](auto layer) { send_ahead(layer); }),
    passes_(c_, parameters_, sums_, clock_, lead_), exchange_(c_), evaluation_(c_, parameters_, lead_) {}

void stage_training::start(const version& at, std::function<bool()> streaming, std::function<bool()> resting,
                           std::function<void()> whole) {
  at_ = at;
  whole_ = std::move(whole);
  waits_since_ = at.steps;
  exchange_.start(std::move(streaming), std::move(resting));
  passes_.start(at.steps);
  parameters_.bind();
  clock_.start();
}

training_state stage_training::state() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  training_state result;
  result.at = at_;
  result.complete = complete_;
  result.result = result_;
  result.voided = voided_;
  result.is_final = is_final();
  result.wants_snapshot = wants_snapshot();
  result.at_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return result;
}

std::string stage_training::problem_before_snapshot(std::uint64_t step) const {
  if (c_.job().on_not_finite == "go_on")
    return {};
  const auto layer = parameters_.layer_not_finite();
  return layer ? "the parameters of layer " + std::to_string(*layer) + " are not finite after step " +
                     std::to_string(step + 1)
               : std::string();
}

sample_reader::waits stage_training::take_waits() {
  auto result = passes_.take_waits();
  result.ms /= static_cast<double>(std::max<std::uint64_t>(1, at_.steps - std::exchange(waits_since_, at_.steps)));
  return result;
}

const commit_result& stage_training::step() {
  const stopwatch time(clock_.of_step());
  drop_gradients();
  if (c_.transport->may_load() && c_.job().evaluate_every > 0)
    evaluation_.rehearse();
  if (c_.transport->begin_step())
    c_.fault("take_over", at_.steps);
  {
    const auto part = clock_.parts().in(step_part::reduction);
    sums_.begin(at_.steps);
  }
  passes_.run(at_.steps);
  {
    const auto part = clock_.parts().in(step_part::reduction);
    sums_.finish(at_.steps);
  }
  const auto part = clock_.parts().in(step_part::optimizer);
  require_usual_bits(c_.on, *c_.options);
  if (whole_) { // who has all contributions applies them, here and elsewhere
    const auto outside = clock_.parts().outside();
    whole_();
  }
  auto mine = exchange_.contribution_of(sums_, passes_.losses(), clock_);
  complete_ = at_.steps; // the norms came, so nothing was cut off
  if (const auto feeds = feeds_.lock())
    feeds->complete(at_, [this](auto layer) -> const at::Tensor& { return sums_.gradient(layer); });
  c_.fault("reduced", at_.steps);
  try {
    const auto said = clock_.parts().in(step_part::exchange);
    result_ = exchange_.exchange(std::move(mine), at_.steps, parameters_);
  } catch (const not_finite&) {
    drop_gradients();
    throw;
  }
  c_.fault("exchanged", at_.steps);
  apply(result_);
  return result_;
}

// To who follows it, while layers before it are computed.
void stage_training::send_ahead(std::uint32_t layer) {
  if (const auto feeds = feeds_.lock())
    feeds->complete(at_, layer, [this](auto i) -> const at::Tensor& { return sums_.gradient(i); });
}

void stage_training::apply(const commit_result& result) {
  if (complete_ != at_.steps || result.step != at_.steps)
    throw std::logic_error("apply of step " + std::to_string(result.step) + " at version " + to_string(at_));
  result_ = result;
  const bool skips = becomes_of(result, c_.job()) == step_end::skipped;
  const auto course = evaluation_.take_course();
  const version next{at_.steps + 1, c_.what->next};
  if (const auto feeds = feeds_.lock()) // who follows applies it meanwhile
    feeds->decided(next, result, skips, course);
  voided_ = true;
  const c10::NoGradGuard no_gradient;
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i) {
    const stopwatch time(clock_.of_layer(i, pass_kind::apply));
    auto& state = c_.store->at(i);
    if (state.leaving.valid()) {
      const auto part = clock_.parts().in(step_part::snapshot);
      std::exchange(state.leaving, {}).get();
    }
    if (!skips) {
      parameters_.apply(i, sums_.gradient(i), at_.steps, result);
      sums_.add_statistics(state.buffers, i);
    }
    if (course && state.course.defined())
      set_course(state, *course);
    c_.fault("apply", at_.steps, i - c_.first_layer() + 1);
  }
  skipped_ += skips ? 1 : 0;
  clock_.end_step();
  at_ = next;
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i)
    c_.store->at(i).at = at_;
  voided_ = false;
  if (const auto feeds = feeds_.lock())
    feeds->applied(*c_.store, at_);
  drop_gradients();
}

void stage_training::drop_gradients() {
  complete_ = no_step;
  sums_.clear();
}

std::vector<at::Tensor> stage_training::take_buffers() {
  drop_gradients();
  return sums_.take_buffers();
}

} // namespace parcae
