#pragma once

// Samples of a job: pure functions of (data, seed, sample number). Torch-free.

#include "protocols/job_specification.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// The data of a job, loaded once per process and shared; any thread may read.
class dataset {
public:
  virtual ~dataset() = default;

  /// SHA-256, hexadecimal, over all files in order: relative path (empty if the data is one file), a zero byte, number of
  /// bytes in decimal, a zero byte, the bytes.
  virtual const std::string& digest() const = 0;

  /// Samples per epoch.
  virtual std::uint64_t size() const = 0;

  /// Fills one sample: `input` and `target` of specification().model.sequence tokens each; target is input shifted by
  /// one token. `index` < size() is the sample's place in the data. Throws std::out_of_range.
  virtual void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const = 0;
};

/// Throws std::runtime_error with path and reason if the data cannot be read or is shorter than one sample.
/// "text": bytes of the regular files below the path (links below it not followed) sorted by relative path, or of that one
/// file. All of it is held in memory.
/// Sample i is the tokens [i·sequence, (i+1)·sequence], so that consecutive samples share one token.
std::shared_ptr<const dataset> load_dataset(const data_specification& data, const model_specification& model);

/// The order of samples: number n of the job is place permutation(epoch n / size)[n % size] of the data. The permutation is
/// Fisher-Yates from the end (for i = size-1 … 1 swap i with r mod (i+1)), r drawn from std::mt19937_64 seeded with
/// mix_seed(seed, "epoch", {epoch}). Keeps the two epochs last used, 4 bytes a sample each. Not thread-safe. Throws
/// std::invalid_argument if size is 0 or needs more than 32 bits.
class sample_order {
public:
  sample_order(std::uint64_t seed, std::uint64_t size);
  std::uint64_t operator()(std::uint64_t number);

private:
  struct epoch_order {
    std::uint64_t epoch = UINT64_MAX;
    std::vector<std::uint32_t> order;
  };

  std::uint64_t seed_;
  std::uint64_t size_;
  epoch_order recent_[2];
};

} // namespace parcae
