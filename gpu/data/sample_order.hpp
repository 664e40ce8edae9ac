#pragma once

// Which of the data's samples a job's sample number n is. Pure functions of (seed, n). Torch-free.

#include <cstdint>
#include <utility>
#include <vector>

namespace parcae {

/// The order of one source: number n is place permutation(epoch n / size)[n % size] of the data.
/// Up to max_listed samples, the permutation is Fisher-Yates from the end (for i = size-1 … 1 swap i with r mod
/// (i+1)), r drawn from std::mt19937_64 seeded with mix_seed(seed, "epoch", {epoch}); the two epochs last used are
/// kept, 4 bytes a sample each. Of more samples it takes no memory: the place's low and high half of 2·b bits (the
/// fewest that suffice) go through six rounds (low, high) ← (high ^ (mix_seed(k, "round", {r, low}) mod 2^b), low), k =
/// mix_seed(seed, "epoch", {epoch}), as often as it takes to come below size: a Feistel network with cycle walking
/// (Black and Rogaway, 2002). Not thread-safe. Throws std::invalid_argument if size is 0 or needs more than 48 bits.
class sample_order {
public:
  static constexpr std::uint64_t max_listed = std::uint64_t{1} << 20;

  sample_order(std::uint64_t seed, std::uint64_t size);
  std::uint64_t operator()(std::uint64_t number);

private:
  struct epoch_order {
    std::uint64_t epoch = UINT64_MAX;
    std::vector<std::uint32_t> order;
  };

  std::uint64_t walk(std::uint64_t epoch, std::uint64_t place) const;

  std::uint64_t seed_;
  std::uint64_t size_;
  unsigned half_bits_ = 0; ///< b; 0: listed
  epoch_order recent_[2];
};

/// The order of several sources with weights, whole numbers of sum W: the numbers [c·W, (c+1)·W) have weight_s samples
/// of each source s, in an order that is Fisher-Yates as above of (weight_0 times 0, weight_1 times 1, …), seeded with
/// mix_seed(seed, "sources", {c}). The k-th sample of source s in the job is sample_order(mix_seed(seed, "source",
/// {s}), its size)(k). Of one source: sample_order(seed, its size). Not thread-safe.
class mixed_order {
public:
  /// A size for each source, and a weight each, or no weights at all: one source.
  mixed_order(std::uint64_t seed, const std::vector<std::uint64_t>& sizes, std::vector<std::uint32_t> weights);

  struct place {
    std::size_t source = 0;
    std::uint64_t index = 0; ///< within the source
  };
  place operator()(std::uint64_t number);

private:
  std::uint64_t seed_;
  std::vector<sample_order> orders_;
  std::vector<std::uint32_t> weights_;
  std::uint64_t cycle_ = UINT64_MAX;                           ///< that drawn_ is of
  std::vector<std::pair<std::uint32_t, std::uint32_t>> drawn_; ///< source, and how many of it are before in the cycle
};

} // namespace parcae
