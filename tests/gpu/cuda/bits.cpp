// Kernels of the GPU against those of the processor: every bit of any input, denormal numbers and infinities included.
// Inputs are no NaN, and a NaN equals a NaN: which one it is, nobody promises.
// Argument: [values for each kernel = 100000000]. Status 1: some differ, 3: there is no GPU.

#include "gpu/cuda/kernels.hpp"
#include "gpu/device/kernels.hpp"

#include <cuda_runtime_api.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace parcae {
namespace {

void check(cudaError_t status) {
  if (status == cudaSuccess)
    return;
  std::fprintf(stderr, "tests/gpu/run: %s\n", cudaGetErrorString(status));
  std::exit(3);
}

/// The same values on both sides.
template <class T>
struct twin {
  explicit twin(std::size_t n) : host(n) { check(cudaMalloc(reinterpret_cast<void**>(&gpu), n * sizeof(T))); }
  ~twin() { cudaFree(gpu); }
  twin(const twin&) = delete;

  void upload() { check(cudaMemcpy(gpu, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice)); }
  std::vector<T> download() const {
    std::vector<T> result(host.size());
    check(cudaMemcpy(result.data(), gpu, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return result;
  }

  std::vector<T> host;
  T* gpu = nullptr;
};

bool is_nan(float x) {
  return std::isnan(x);
}
bool is_nan(double x) {
  return std::isnan(x);
}
template <class T>
bool is_nan(T) {
  return false;
}

template <class T>
std::size_t differences(const twin<T>& x) {
  check(cudaDeviceSynchronize());
  const auto other = x.download();
  std::size_t result = 0;
  for (std::size_t i = 0; i < other.size(); ++i)
    result += std::memcmp(&x.host[i], &other[i], sizeof(T)) != 0 && !(is_nan(x.host[i]) && is_nan(other[i]));
  return result;
}

/// Values for one round of all kernels.
class round_of_kernels {
public:
  round_of_kernels(std::size_t n, std::uint64_t seed) :
      n_(n), seed_(seed), draw_(seed), a_(n), b_(n), c_(n), d_(n), to_(n), small_(n), other_(n), number_(1) {}

  /// f(name, differences) for each kernel.
  void run(const std::function<void(const char*, std::size_t)>& tell) {
    for (auto* x : {&a_, &b_, &c_, &d_})
      fill(*x);
    additions(tell);
    sums(tell);
    optimizers(tell);
    norm(tell);
    random_numbers(tell);
    attention(tell);
  }

private:
  using teller = std::function<void(const char*, std::size_t)>;

  void fill(twin<float>& x) {
    for (auto& value : x.host)
      do
        value = std::bit_cast<float>(static_cast<std::uint32_t>(draw_()));
      while (std::isnan(value));
    x.upload();
  }

  void additions(const teller& tell) {
    add_values(to_.host.data(), a_.host.data(), b_.host.data(), n_);
    cuda::add_values(nullptr, to_.gpu, a_.gpu, b_.gpu, n_);
    tell("add float32", differences(to_));
    round_values(small_.host.data(), b_.host.data(), n_);
    cuda::round_values(nullptr, small_.gpu, b_.gpu, n_);
    tell("round", differences(small_));
    small_.upload();
    add_values(to_.host.data(), a_.host.data(), small_.host.data(), n_);
    cuda::add_values(nullptr, to_.gpu, a_.gpu, small_.gpu, n_);
    tell("add bfloat16", differences(to_));
    widen_values(to_.host.data(), small_.host.data(), n_);
    cuda::widen_values(nullptr, to_.gpu, small_.gpu, n_);
    tell("widen", differences(to_));
    round_values(other_.host.data(), a_.host.data(), n_);
    other_.upload();
    add_values(other_.host.data(), other_.host.data(), small_.host.data(), n_);
    cuda::add_values(nullptr, other_.gpu, other_.gpu, small_.gpu, n_);
    tell("sum in bfloat16", differences(other_));
  }

  void sums(const teller& tell) {
    const struct {
      const char* name;
      std::vector<std::uint8_t> joins;
    } table[] = {
        {"sum of 5 in tree order", {0, 1, 0, 2, 1}},
        {"sum of 8 in tree order", {0, 1, 0, 2, 0, 1, 0, 3}},
        {"sum of 12 from the right", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11}},
    };
    for (const auto& x : table) {
      const addition_order order(x.joins);
      std::vector<const float*> here, there;
      for (std::size_t k = 0; k < x.joins.size(); ++k) {
        const auto& from = k % 4 == 0 ? a_ : k % 4 == 1 ? b_ : k % 4 == 2 ? c_ : d_;
        here.push_back(from.host.data());
        there.push_back(from.gpu);
      }
      add_in_order(order, to_.host.data(), here, n_);
      cuda::add_in_order(nullptr, order, to_.gpu, there, n_);
      tell(x.name, differences(to_));
    }
    const addition_order order(table[0].joins);
    const bfloat16 *here[] = {small_.host.data(), other_.host.data(), small_.host.data(), other_.host.data(),
                              small_.host.data()},
                   *there[] = {small_.gpu, other_.gpu, small_.gpu, other_.gpu, small_.gpu};
    add_in_order(order, other_.host.data(), here, n_);
    cuda::add_in_order(nullptr, order, other_.gpu, there, n_);
    tell("sum of 5 in bfloat16", differences(other_));
  }

  void optimizers(const teller& tell) {
    const adamw_factors adamw{0.7f, 0.999f, 0.9f, 0.1f, 0.999f, 0.001f, 0.01f, 1.5f, 1e-8f};
    step_adamw(adamw, a_.host.data(), b_.host.data(), c_.host.data(), d_.host.data(), small_.host.data(), n_);
    cuda::step_adamw(nullptr, adamw, a_.gpu, b_.gpu, c_.gpu, d_.gpu, small_.gpu, n_);
    tell("AdamW", differences(a_) + differences(b_) + differences(c_) + differences(small_));
    // of sizes that are met
    draw_normal(a_.host.data(), n_, seed_, 0.02f);
    draw_normal(b_.host.data(), n_, seed_ + 1, 1e-4f);
    draw_normal(d_.host.data(), n_, seed_ + 2, 1e-3f);
    for (std::size_t i = 0; i < n_; ++i)
      c_.host[i] = b_.host[i] * b_.host[i];
    for (auto* x : {&a_, &b_, &c_, &d_})
      x->upload();
    step_adamw(adamw, a_.host.data(), b_.host.data(), c_.host.data(), d_.host.data(), nullptr, n_);
    cuda::step_adamw(nullptr, adamw, a_.gpu, b_.gpu, c_.gpu, d_.gpu, nullptr, n_);
    tell("AdamW, usual values", differences(a_) + differences(b_) + differences(c_));
    for (auto* x : {&a_, &b_, &d_})
      fill(*x);
    const sgd_factors sgd{0.7f, 0.1f, 0.9f, 0.01f};
    step_sgd(sgd, a_.host.data(), b_.host.data(), d_.host.data(), small_.host.data(), n_);
    cuda::step_sgd(nullptr, sgd, a_.gpu, b_.gpu, d_.gpu, small_.gpu, n_);
    tell("SGD with momentum", differences(a_) + differences(b_) + differences(small_));
    fill(a_);
    step_sgd(sgd, a_.host.data(), nullptr, d_.host.data(), nullptr, n_);
    cuda::step_sgd(nullptr, sgd, a_.gpu, nullptr, d_.gpu, nullptr, n_);
    tell("SGD", differences(a_));
  }

  void norm(const teller& tell) {
    twin<double> scratch(cuda::scratch_of(n_) + 1);
    for (const auto n : {n_, n_ / 2 + 17, std::size_t{2049}, std::size_t{1}}) {
      number_.host[0] = squared_norm(d_.host.data(), n);
      cuda::squared_norm(nullptr, d_.gpu, n, scratch.gpu, number_.gpu);
      tell("squared norm", differences(number_));
    }
  }

  void random_numbers(const teller& tell) {
    const auto n = n_ - 3; // not whole blocks
    to_.upload();
    draw_normal(to_.host.data(), n, seed_, 0.02f, 4 * seed_);
    cuda::draw_normal(nullptr, to_.gpu, n, seed_, 0.02f, 4 * seed_);
    tell("normal numbers", differences(to_));
    draw_uniform(to_.host.data(), n, seed_, 0.3f, 4 * seed_);
    cuda::draw_uniform(nullptr, to_.gpu, n, seed_, 0.3f, 4 * seed_);
    tell("uniform numbers", differences(to_));
    const auto mask = mask_of(seed_, 0.1);
    drop_values(to_.host.data(), a_.host.data(), n, mask, 4 * seed_);
    cuda::drop_values(nullptr, to_.gpu, a_.gpu, n, mask, 4 * seed_);
    tell("dropout", differences(to_));
  }

  /// Rows whose requests have the whole pool, each in another order.
  void attention(const teller& tell) {
    for (const attention_shape shape : {attention_shape{12, 12, 64}, {8, 2, 80}, {3, 1, 46}}) {
      constexpr std::size_t count = 16, blocks = 20;
      const auto row_values = shape.heads * shape.size, stride = row_values + 2 * shape.key_heads * shape.size;
      twin<float> pool(blocks * shape.block_values()), given(count * stride), to(count * row_values);
      twin<std::int32_t> table(count * blocks);
      twin<std::int64_t> positions(count);
      draw_normal(pool.host.data(), pool.host.size(), seed_, 1);
      draw_normal(given.host.data(), given.host.size(), seed_ + 1, 1);
      for (std::size_t row = 0; row < count; ++row) {
        for (std::size_t i = 0; i < blocks; ++i)
          table.host[row * blocks + i] = static_cast<std::int32_t>((i * 7 + row) % blocks);
        positions.host[row] = static_cast<std::int64_t>(draw_() % (blocks * block_positions));
      }
      positions.host[0] = 0;
      const auto upload = [](auto&... x) { (x.upload(), ...); };
      upload(pool, given, table, positions);
      const auto keys = row_values, values = keys + shape.key_heads * shape.size;
      const auto rows_of = [&](float* at, const std::int32_t* numbers, const std::int64_t* of) {
        return cached_rows{count, at, shape.block_values(), numbers, blocks, of};
      };
      const auto here = rows_of(pool.host.data(), table.host.data(), positions.host.data());
      const auto there = rows_of(pool.gpu, table.gpu, positions.gpu);
      for (std::size_t row = 0; row < count; ++row) { // one after the other: they share blocks
        const auto at = row * stride;
        keep_rows(shape, part_of(here, row, 1), &given.host[at + keys], &given.host[at + values], stride);
        cuda::keep_rows(nullptr, shape, part_of(there, row, 1), given.gpu + at + keys, given.gpu + at + values, stride);
      }
      tell("keys and values of rows", differences(pool));
      attend_rows(shape, here, 0.125f, given.host.data(), stride, to.host.data());
      cuda::attend_rows(nullptr, shape, there, 0.125f, given.gpu, stride, to.gpu);
      tell("attention of rows", differences(to));
    }
  }

  const std::size_t n_;
  const std::uint64_t seed_;
  std::mt19937_64 draw_;
  twin<float> a_, b_, c_, d_, to_;
  twin<bfloat16> small_, other_;
  twin<double> number_;
};

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  const auto wanted = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100'000'000;
  int count = 0;
  if (const auto status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0) {
    std::fprintf(stderr, "tests/gpu/run: no GPU: %s\n", cudaGetErrorString(status));
    return 3;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  constexpr std::size_t at_once = 10'000'000;
  std::vector<std::pair<std::string, std::size_t>> result; // in the order of the first round
  std::size_t values = 0;
  for (std::uint64_t round = 0; values < wanted; ++round) {
    const auto n = std::min<std::size_t>(at_once, wanted - values);
    round_of_kernels(n, round + 1).run([&](const char* name, std::size_t different) {
      for (auto& [known, sum] : result)
        if (known == name) {
          sum += different;
          return;
        }
      result.emplace_back(name, different);
    });
    check(cudaGetLastError());
    values += n;
  }
  std::printf("%s, %zu values\n", properties.name, values);
  std::size_t all = 0;
  for (const auto& [name, different] : result) {
    std::printf("%-26s %zu differ\n", name.c_str(), different);
    all += different;
  }
  return all == 0 ? 0 : 1;
}
