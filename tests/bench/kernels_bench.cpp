// A device's kernels against its own copies: how many bytes a second a kernel reads and writes, over how many a copy
// within the device's memory does, alternating. Prints figures; fails if one is beyond its bound.

#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/chosen_device.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {
namespace {

using work = std::function<void()>;

class kernels_bench {
public:
  kernels_bench(device& on, std::size_t values) :
      stream_(on.make_stream()), n_(values), copy_(on.allocate(n_ * sizeof(bfloat16))),
      result_(on.allocate(sizeof(double))) {
    for (auto& x : memory_)
      x = on.allocate(n_ * sizeof(float));
    for (std::uint64_t i = 0; i < memory_.size(); ++i)
      stream_->draw_uniform(values_of(i), n_, i + 1, i == 2 ? 0 : 0.01f, 0); // no second moment is less than 0
  }

  void run(figures& out) {
    const adamw_factors adamw{1, 0.999f, 0.9f, 0.1f, 0.999f, 0.001f, 0.01f, 1.5f, 1e-8f};
    const sgd_factors sgd{1, 0.1f, 0.9f, 0.01f};
    const addition_order tree({0, 1, 0, 2});
    const std::array<const float*, 4> sums{values_of(0), values_of(1), values_of(2), values_of(3)};
    auto* copy = reinterpret_cast<bfloat16*>(copy_.get());
    const auto held_to = [&](const char* what, double bytes_per_value, double bound, const work& f) {
      out.at_least(std::string(what) + ", rate over that of a copy", over_copy(bytes_per_value, f), bound);
    };
    held_to("AdamW with the copy in bfloat16", 30, 0.8,
            [&] { stream_->step_adamw(adamw, values_of(0), values_of(1), values_of(2), values_of(3), copy, n_); });
    held_to("SGD with momentum and the copy in bfloat16", 22, 0.8,
            [&] { stream_->step_sgd(sgd, values_of(0), values_of(1), values_of(3), copy, n_); });
    held_to("sum of four in tree order", 20, 0.8, [&] { stream_->add_in_order(tree, values_of(4), sums, n_); });
    held_to("adding a gradient in bfloat16", 10, 0.8,
            [&] { stream_->add_values(values_of(4), values_of(4), copy, n_); });
    const std::array<const bfloat16*, 4> small{copy, copy + n_ / 4, copy + n_ / 2, copy + 3 * (n_ / 4)};
    auto* const to = reinterpret_cast<bfloat16*>(values_of(4));
    out.only_shown("sum of four in tree order in bfloat16, rate over that of a copy",
                   over_copy(2.5, [&] { stream_->add_in_order(tree, to, small, n_ / 4); }));
    held_to("squared norm", 4, 0.8,
            [&] { stream_->squared_norm(values_of(3), n_, reinterpret_cast<double*>(result_.get())); });
    out.only_shown("copy within the device, GB/s", 8e-6 * static_cast<double>(n_) / copy_ms());
  }

private:
  float* values_of(std::size_t i) { return reinterpret_cast<float*>(memory_[i].get()); }

  /// One of many in a row. The one before them is still under way when they are given, so the device waits for no host.
  double ms_of(const work& f) {
    constexpr int repeats = 20;
    f();
    const auto began = stream_->record_time();
    for (int i = 0; i < repeats; ++i)
      f();
    const auto ended = stream_->record_time();
    if (!ended->wait(std::chrono::minutes(1)))
      throw std::runtime_error("a kernel takes for ever");
    return ended->ms_since(*began) / repeats;
  }

  double copy_ms() {
    return ms_of([&] { stream_->copy(memory_[4].get(), memory_[0].get(), n_ * sizeof(float)); });
  }

  /// A copy reads and writes 8 bytes for each value.
  double over_copy(double bytes_per_value, const work& f) {
    constexpr int rounds = 7;
    std::vector<double> ratios;
    for (int i = 0; i < rounds; ++i)
      ratios.push_back(bytes_per_value / 8 * copy_ms() / ms_of(f));
    return median(ratios);
  }

  const std::unique_ptr<stream> stream_;
  const std::size_t n_;
  std::array<device_memory, 5> memory_; ///< of floats; the first four: parameters, moments, gradient
  const device_memory copy_, result_;
};

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  std::string where = "cpu";
  std::size_t values = std::size_t{1} << 27; // far beyond all caches
  CLI::App app{"A device's kernels against its own copies.", "kernels_bench"};
  app.add_option("--device", where, "cpu, or cuda:N")->capture_default_str();
  app.add_option("--values", values, "for each kernel")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  auto* gpu = open_device(where);
  const auto processor = make_cpu_device({});
  figures out;
  kernels_bench(gpu ? *gpu : *processor, values).run(out);
  return out.status();
}
