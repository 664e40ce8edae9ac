// Compiled with -ffp-contract=off: what follows is the same on every processor.

#include "gpu/serving/sampler.hpp"

#include "gpu/device/random.hpp"
#include "protocols/model/seed.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace parcae {

namespace {

struct candidate {
  float logit;
  std::uint32_t token;
};

/// Whether x comes after y.
bool after(const candidate& x, const candidate& y) {
  return x.logit != y.logit ? x.logit < y.logit : x.token > y.token;
}

std::uint32_t first_of(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);                                         // of equal ones the first
  const auto is_usable = [&](float x) { return x < std::numeric_limits<float>::infinity(); }; // no NaN either
  if (logits.empty() || !std::ranges::all_of(logits, is_usable) || std::isinf(*best))
    throw sampling_error("the logits are not finite");
  return static_cast<std::uint32_t>(best - logits.begin());
}

/// exp(x), x <= 0, by the series of its rest: libm's differ by version and processor.
double exp_of(double x) {
  if (x < -700)
    return 0;
  const auto n = std::floor(x * 0x1.71547652b82fep+0 + 0.5);
  const auto r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  double sum = 1;
  for (int k = 13; k > 0; --k)
    sum = 1 + sum * r / k;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

/// In [0, 1), a multiple of 2^-53.
double uniform_at(std::uint64_t seed) {
  const auto words = philox(seed, 0);
  return static_cast<double>((std::uint64_t{words.x[0]} << 21) ^ (words.x[1] >> 11)) * 0x1p-53;
}

/// The candidates in their order, each with the sum of weights up to it; the next one is looked for when it is asked
/// for, as mostly few are.
class ordered_candidates {
public:
  ordered_candidates(std::span<const float> logits, double temperature) :
      most_(*std::ranges::max_element(logits)), temperature_(temperature) {
    for (std::uint32_t i = 0; i < logits.size(); ++i)
      if (const auto weight = weight_of(logits[i]); weight > 0) {
        left_.push_back({logits[i], i});
        sum_of_all_ += weight;
      }
    std::ranges::make_heap(left_, after);
  }

  std::size_t count() const { return known_.size() + left_.size(); }
  double sum_of_all() const { return sum_of_all_; }
  std::uint32_t token(std::size_t i) { return (*this)[i].token; }
  double sum_to(std::size_t i) { return (*this)[i].sum; }

private:
  struct summed {
    std::uint32_t token;
    double sum;
  };

  double weight_of(float logit) const { return exp_of((double{logit} - most_) / temperature_); }

  const summed& operator[](std::size_t i) {
    while (known_.size() <= i) {
      std::ranges::pop_heap(left_, after);
      const auto before = known_.empty() ? 0 : known_.back().sum;
      known_.push_back({left_.back().token, before + weight_of(left_.back().logit)});
      left_.pop_back();
    }
    return known_[i];
  }

  double most_, temperature_;
  double sum_of_all_ = 0;
  std::vector<summed> known_;
  std::vector<candidate> left_; ///< a heap
};

} // namespace

std::uint32_t token_of(std::span<const float> logits, const sampling& x, std::uint64_t position) {
  const auto first = first_of(logits);
  if (x.temperature == 0)
    return first;
  ordered_candidates all(logits, x.temperature);
  auto count = all.count();
  auto sum = all.sum_of_all();
  if (x.top_k > 0 && x.top_k < count) {
    count = x.top_k;
    sum = all.sum_to(count - 1);
  }
  if (x.top_p < 1) {
    std::size_t kept = 1;
    while (kept < count && all.sum_to(kept - 1) < x.top_p * sum)
      ++kept;
    count = kept;
    sum = all.sum_to(count - 1);
  }
  const auto drawn = uniform_at(mix_seed(x.seed, "token", {position})) * sum;
  std::size_t i = 0;
  while (i + 1 < count && all.sum_to(i) <= drawn)
    ++i;
  return all.token(i);
}

} // namespace parcae
