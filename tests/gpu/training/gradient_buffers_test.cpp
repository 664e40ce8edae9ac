// Buffers that gradients are summed up in: none is made in a generation's first step that was there before it.

#include "gpu/training/gradient_sums.hpp"
#include "tests/gpu/training/stage_executor_fixture.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <map>
#include <vector>

namespace parcae::rig {
namespace {

/// In front of LibTorch's allocator from here on: tensors of one size that are made.
class made_tensors final : public at::Allocator {
public:
  static made_tensors& all() {
    static auto* result = new made_tensors;
    return *result;
  }

  void count(std::size_t bytes) {
    bytes_ = bytes;
    made_ = 0;
  }
  int made() const { return made_; }

  at::DataPtr allocate(std::size_t n) override {
    made_ += n == bytes_;
    return below_->allocate(n);
  }
  at::DeleterFnPtr raw_deleter() const override { return below_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override { below_->copy_data(to, from, n); }

private:
  made_tensors() { c10::SetCPUAllocator(this, 2); }

  at::Allocator* const below_ = c10::GetCPUAllocator();
  std::atomic<std::size_t> bytes_ = 0;
  std::atomic<int> made_ = 0;
};

class gradient_buffers : public stage_executor_test {
protected:
  gradient_buffers() {
    job.model = {"mlp", 2, 64, 1, 16, 256, 0, false};
    job.data = {.kind = "synthetic"};
    model_ = describe(job.model);
  }

  /// Of a hidden layer, whose weights and bias autograd leaves in two tensors.
  std::size_t gradient_bytes() const { return model_.layers[1].parameters() * sizeof(float); }

  model_description model_;
};

// given: a rank that keeps its stage in the next generation / expected: it makes no buffer for gradients anew
TEST_F(gradient_buffers, outlive_a_generation) {
  worker w("w");
  auto& tensors = made_tensors::all();
  const auto at = run_and_stop(w, plan(1, {&w}));
  tensors.count(gradient_bytes());
  const auto next = plan(2, {&w});
  prepare_and_start(w, next, at);
  w.work->submit(stop{next.next});
  EXPECT_GT(w.said.next<stopped>().at.steps, at.steps);
  EXPECT_EQ(tensors.made(), 0);
}

// given: a worker without a place that takes over a stage / expected: what it needs is made before it says PREPARED:
// for each hidden layer parameters, two moments and a buffer for gradients
TEST_F(gradient_buffers, are_prepared_by_who_has_none) {
  job.virtual_replicas = 1;
  worker w("w"), v("v");
  auto& tensors = made_tensors::all();
  const auto at = run_and_stop(w, plan(1, {&w}));
  tensors.count(gradient_bytes());
  const auto next = move_all(plan(2, {&v, &w}));
  for (auto* x : {&v, &w})
    x->work->submit(next);
  for (auto* x : {&v, &w})
    x->said.next<prepared>();
  EXPECT_EQ(tensors.made(), 2 * 4);
  for (auto* x : {&v, &w})
    x->work->submit(activate{next.next, at});
  v.said.next<active>();
  v.work->submit(stop{next.next});
  EXPECT_GT(v.said.next<stopped>().at.steps, at.steps);
  EXPECT_EQ(tensors.made(), 2 * 4);
}

// given: buffers of another generation, whose pipelines had more replicas / expected: each layer has as many as it may
// need, of its size; the rest goes
TEST_F(gradient_buffers, are_no_more_than_needed) {
  const auto most_of = [&](replica_range owned) {
    gradient_sums sums(model_, 1, 3, 8, owned, sum_type::float32, processor());
    std::vector<at::Tensor> given{at::empty({1})};
    for (int i = 0; i < 20; ++i)
      given.push_back(at::empty({static_cast<std::int64_t>(model_.layers[1].parameters())}));
    sums.use(std::move(given));
    return sums.take_buffers().size();
  };
  EXPECT_EQ(most_of({0, 1}), 2u * 1);
  EXPECT_EQ(most_of({0, 2}), 2u * 2);
  EXPECT_EQ(most_of({0, 8}), 2u * 4);
}

} // namespace
} // namespace parcae::rig
