#include "gpu/training/sample_reader.hpp"

#include "protocols/base/crash_stack.hpp"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

constexpr std::uint64_t max_bytes_ahead = 32 << 20;
constexpr std::chrono::milliseconds look_up{20}; ///< from waiting, whether the generation has ended

double ms_since(steady::time_point t) {
  return std::chrono::duration<double, std::milli>(steady::now() - t).count();
}

std::size_t max_ahead(const sample_reader::plan& x) {
  const auto bytes = sizeof(std::int64_t) * x.job->micro_batch * (x.model->input_values() + x.model->targets);
  return std::clamp<std::uint64_t>(max_bytes_ahead / bytes, 2, std::max(2u, 2 * x.count));
}

} // namespace

sample_reader::sample_reader(plan x) :
    what_(std::move(x)), max_ahead_(max_ahead(what_)), samples_(*what_.job, what_.data),
    account_(tensor_account::of_this_thread()) {}

sample_reader::~sample_reader() {
  {
    const lock held(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable())
    thread_.join();
}

void sample_reader::begin(std::uint64_t step) {
  thread_ = std::thread([this, step] { run(step); });
}

void sample_reader::run(std::uint64_t step) {
  use_crash_stack();
  const tensor_account::scope counted(account_);
  for (; step < what_.job->steps; ++step)
    for (std::uint32_t i = 0; i < what_.count; ++i) {
      {
        lock held(mutex_);
        while (ready_.size() >= max_ahead_ && !closed_)
          held.wait(changed_);
      }
      if (closed_)
        return;
      auto next = read(step, what_.first + i);
      const bool failed = next.error != nullptr;
      const lock held(mutex_);
      ready_.push_back(std::move(next));
      changed_.notify_all();
      if (failed)
        return;
    }
}

sample_reader::batch sample_reader::read(std::uint64_t step, std::uint32_t micro_batch) {
  const auto& job = *what_.job;
  batch result;
  try {
    result.samples = empty_samples(*what_.model, job.micro_batch);
    const auto first = step * job.global_batch + std::uint64_t{micro_batch} * job.micro_batch;
    for (std::uint32_t i = 0; i < job.micro_batch; ++i)
      what_.data->expect(samples_.place_of(first + i));
    double slowest_ms = -1;
    std::uint64_t slowest = 0;
    for (std::uint32_t i = 0; i < job.micro_batch && !closed_; ++i) {
      const auto began = steady::now();
      auto inputs = sample_values(result.samples.inputs, i);
      if (!what_.inputs && !samples_.targets_need_input())
        inputs = {};
      samples_.training(first + i, inputs, sample_values(result.samples.targets, i));
      if (const auto ms = ms_since(began); ms > slowest_ms) {
        slowest_ms = ms;
        slowest = samples_.place_of(first + i);
      }
    }
    auto& [all_inputs, targets] = result.samples;
    all_inputs = what_.inputs ? sent_to(what_.on.place(), all_inputs) : at::Tensor();
    targets = sent_to(what_.on.place(), targets);
    result.slowest = what_.data->file_of(slowest);
  } catch (const c10::OutOfMemoryError& e) {
    what_.on.note_end(e); // now: who would be told may have ended before, by another fault
    result.error = std::make_exception_ptr(std::runtime_error(e.what_without_backtrace()));
  } catch (...) {
    result.error = std::current_exception();
  }
  return result;
}

sample_tensors sample_reader::take(const std::atomic<bool>& aborted) {
  const auto began = steady::now();
  bool waited = false;
  lock held(mutex_);
  while (ready_.empty()) {
    if (aborted)
      return {};
    waited = true;
    held.wait_until(changed_, steady::now() + look_up);
  }
  if (ready_.front().error) // stays: nothing comes after it
    std::rethrow_exception(ready_.front().error);
  auto next = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  held.give_back();
  if (const bool first = std::exchange(is_first_, false); waited && !first) {
    const auto ms = ms_since(began);
    waits_.ms += ms;
    if (ms > longest_ms_) {
      longest_ms_ = ms;
      waits_.longest_for = std::move(next.slowest);
    }
  }
  return std::move(next.samples);
}

sample_reader::waits sample_reader::take_waits() {
  longest_ms_ = 0;
  return std::exchange(waits_, {});
}

} // namespace parcae
