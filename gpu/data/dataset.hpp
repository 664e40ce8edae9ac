#pragma once

// Samples of a job: pure functions of (data, seed, sample number). Torch-free.

#include "gpu/data/sample_order.hpp"
#include "protocols/values/job_specification.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

/// The data is missing, unreadable, or not what the job started with: one line with path and reason.
struct data_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What is there cannot be a sample of the job, on whatever node: file and place, what is wrong.
struct sample_error : data_error {
  using data_error::data_error;
};

/// The data of a job, opened once per process and shared; any thread may read.
class dataset {
public:
  virtual ~dataset() = default;

  /// SHA-256, hexadecimal, over all files in order: relative path (empty if the data is one file), a zero byte, number
  /// of bytes in decimal, a zero byte, the bytes. Of more than data_read_whole bytes in all: "sampled", and in place
  /// of the bytes, after all sizes, sampled ones (data_files.cpp). Of synthetic data: over what it is made from.
  virtual const std::string& digest() const = 0;

  /// If digest() is of samples: of every byte, which takes as long as reading them. Empty if it is not, or `stop` was
  /// set. Throws data_error.
  virtual std::string whole_digest(const std::atomic<bool>& stop) const = 0;

  /// Samples, those for validation (the last ones of each source) included.
  virtual std::uint64_t size() const = 0;

  /// Samples of each source, in order.
  virtual std::vector<std::uint64_t> sizes() const { return {size()}; }

  /// Fills one sample: `input` has all of the model's inputs, one after the other, token or pixel values, or is empty:
  /// not wanted; `target` as the model's description says. `index` < size() is the sample's place in the data. Throws
  /// std::out_of_range, also for other extents, sample_error, data_error.
  virtual void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const = 0;

  /// The same as it is trained on: what is random about it (a part of an image) follows from the seed.
  virtual void read_augmented(std::uint64_t index, std::uint64_t /*seed*/, std::span<std::int64_t> input,
                              std::span<std::int64_t> target) const {
    read(index, input, target);
  }

  /// It will be read soon: a disk may begin.
  virtual void expect(std::uint64_t /*index*/) const {}

  /// The file that has a sample.
  virtual std::string file_of(std::uint64_t index) const = 0;

  /// Something could not be read, or was not what it had been: open it anew.
  virtual bool spoiled() const { return false; }
};

/// Throws data_error with path and reason if the data cannot be read, does not suit the model, or has no sample left
/// for training. Files are those below the path (links below it not followed) sorted by relative path, or that one
/// file. Up to data_held bytes are held in memory, and all samples checked; more is read when it is wanted, and checked
/// then. "text": bytes. Sample i is the tokens [i·sequence, (i+1)·sequence], so that consecutive samples share one
/// token; the target is the input shifted by one token. "tokens": the same of little-endian numbers of token_bytes, or
/// NumPy's files (npy.hpp), all below the vocabulary. "images": CIFAR-10's binary format: one byte for the label, then
/// the pixels, channel by channel, row by row. Of a folder only files named *.bin. "image_folder": JPEG and PNG files
/// (image_folder.cpp). "columns": what parcae_model.export_dataset wrote (columns.cpp). "synthetic": drawn from `seed`,
/// and learnable: a token is followed by its successor three times out of four, else by any; an image is half noise and
/// half a pattern of its class, 4×4 cells. Unless `folders` is empty, the path must be below one of them once all links
/// are resolved. A URL is what fetched() makes of it; of URLs `folders` has those that are allowed.
std::shared_ptr<const dataset> load_dataset(const data_specification& data, const model_specification& model,
                                            const std::vector<std::filesystem::path>& folders = {});

inline constexpr std::uint64_t data_held = 32 << 20;      ///< bytes
inline constexpr std::uint64_t data_read_whole = 1 << 30; ///< bytes: SHA-256 of them takes some two seconds

} // namespace parcae
