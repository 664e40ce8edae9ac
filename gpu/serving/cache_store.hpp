#pragma once

// The keys and values of requests in the layers of a stage: blocks of 16 positions, by request and layer, in memory
// that is taken once.

#include "gpu/device/attention.hpp"
#include "gpu/layers/model.hpp"
#include "protocols/schedule/request_row.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace parcae {

/// The layers that have attention, and its shape there.
using kept_shapes = std::map<std::uint32_t, attention_shape>;

/// One thread.
class cache_store {
public:
  /// As many blocks as there is room for in `bytes`, all as large as those of the layer that keeps most. Throws what
  /// LibTorch does if there is no such memory.
  cache_store(const kept_shapes& shapes, std::uint64_t bytes, const tensor_device& on);

  /// Room for positions [0, positions) of a request in all layers, or nothing and false: there is not as much. What it
  /// holds stays.
  bool reserve(std::uint64_t request, std::uint32_t positions);
  /// Its blocks are free; unknown: does nothing.
  void release(std::uint64_t request);
  /// Likewise all but these.
  void release_others(const std::set<std::uint64_t>& than);

  /// All layers have its positions [0, held). 0: unknown.
  std::uint32_t held(std::uint64_t request) const;
  std::size_t blocks() const { return static_cast<std::size_t>(pool_.size(0)); }
  std::size_t free_blocks() const { return free_.size(); }
  /// Of one request; of several each has blocks of its own.
  std::uint64_t positions() const;

private:
  friend class cache_pass;

  struct kept_request {
    std::uint32_t held = 0;
    std::vector<std::vector<std::int32_t>> blocks; ///< by layer, in the order of shapes_
  };

  const kept_shapes shapes_;
  const tensor_device on_;
  at::Tensor pool_;                ///< [blocks, values]
  std::vector<std::int32_t> free_; ///< the last is given first
  std::map<std::uint64_t, kept_request> requests_;
};

/// The caches as the rows of one pass see them. Does not outlive the store, whose requests stay as they are meanwhile.
class cache_pass final : public row_caches {
public:
  /// Rows of one request have rising positions without a gap, of which the first is at most one behind what is held,
  /// and room is reserved for all of them. Else throws std::invalid_argument.
  cache_pass(cache_store& store, std::span<const request_row> rows);

  /// int64 [size, 1], 0 behind those of rows.
  at::Tensor positions(std::size_t size) const;

  /// What is padded behind the rows is kept nowhere, and 0 comes of it.
  at::Tensor attend(std::uint32_t layer, const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                    double scale) override;

  /// All layers have its rows.
  void finish();

private:
  cached_rows rows_in(std::uint32_t layer) const;

  cache_store& store_;
  std::map<std::uint64_t, std::uint32_t> held_; ///< afterwards
  at::Tensor positions_;                        ///< int64 [rows], there
  at::Tensor blocks_;                           ///< int32 [layers, rows, most blocks], there
};

} // namespace parcae
