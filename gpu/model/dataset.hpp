#pragma once

// Samples of a job: pure functions of (data, seed, sample number). Torch-free.

#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// The data of a job, loaded once per process and shared; any thread may read.
class dataset {
public:
  virtual ~dataset() = default;

  /// SHA-256, hexadecimal, over all files in order: relative path (empty if the data is one file), a zero byte, number
  /// of bytes in decimal, a zero byte, the bytes. Of synthetic data: over what it is made from.
  virtual const std::string& digest() const = 0;

  /// Samples, those for validation (the last ones) included.
  virtual std::uint64_t size() const = 0;

  /// Fills one sample: `input` of the model's input shape, token or pixel values; `target` as the model's description
  /// says. `index` < size() is the sample's place in the data. Throws std::out_of_range, also for other sizes.
  virtual void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const = 0;
};

/// Throws std::runtime_error with path and reason if the data cannot be read, does not suit the model, or has no sample
/// left for training. Files are those below the path (links below it not followed) sorted by relative path, or that one
/// file. All of it is held in memory.
/// "text": bytes. Sample i is the tokens [i·sequence, (i+1)·sequence], so that consecutive samples share one token; the
/// target is the input shifted by one token.
/// "tokens": the same of little-endian 16-bit numbers, all below the vocabulary.
/// "images": CIFAR-10's binary format: one byte for the label, then the pixels, channel by channel, row by row. Of a
/// folder only files named *.bin.
/// "synthetic": drawn from `seed`, and learnable: a token is followed by its successor three times out of four, else by
/// any; an image is half noise and half a pattern of its class, 4×4 cells.
/// Unless `folders` is empty, the path must be below one of them once all links are resolved.
std::shared_ptr<const dataset> load_dataset(const data_specification& data, const model_specification& model,
                                            const std::vector<std::filesystem::path>& folders = {});

/// Throws std::runtime_error unless a path is below one of the folders, links resolved, or there are none.
void require_within(const std::filesystem::path& path, const std::vector<std::filesystem::path>& folders);

/// The order of samples: number n of the job is place permutation(epoch n / size)[n % size] of the data. The
/// permutation is Fisher-Yates from the end (for i = size-1 … 1 swap i with r mod (i+1)), r drawn from std::mt19937_64
/// seeded with mix_seed(seed, "epoch", {epoch}). Keeps the two epochs last used, 4 bytes a sample each. Not
/// thread-safe. Throws std::invalid_argument if size is 0 or needs more than 32 bits.
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
