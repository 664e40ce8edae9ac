#pragma once

// The keys and values of requests in the layers of a model: blocks of 16 positions, by request and layer, in memory
// that is taken once, whichever of the layers are computed here.

#include "gpu/dataplane/pass_frames.hpp"
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

/// That these positions of a request take in a layer.
inline std::size_t blocks_of(std::uint32_t positions) {
  return (positions + block_positions - 1) / block_positions;
}

/// One thread.
class cache_store {
public:
  /// As many blocks as there is room for in `bytes`, all as large as those of the layer that keeps most, of those in
  /// `shapes`. All these are computed. Throws what LibTorch does if there is no such memory.
  cache_store(kept_shapes shapes, std::uint64_t bytes, const tensor_device& on);

  /// From now on layers [first, last) are computed: what is held of others goes.
  void compute(std::uint32_t first, std::uint32_t last);

  // In all layers that are computed.

  /// Room for positions [0, positions) of a request, or nothing and false: there is not as much. What it holds stays.
  bool reserve(std::uint64_t request, std::uint32_t positions);
  /// All layers have its positions [0, held). 0: unknown. None of the layers keeps anything: UINT32_MAX.
  std::uint32_t held(std::uint64_t request) const;
  /// Of one request; of several each has blocks of its own.
  std::uint64_t positions() const;

  // In all layers.

  /// Its blocks are free; unknown: does nothing.
  void release(std::uint64_t request);
  /// Likewise all but these.
  void release_others(const std::set<std::uint64_t>& than);

  std::size_t blocks() const { return static_cast<std::size_t>(pool_.size(0)); }
  std::size_t free_blocks() const { return free_.size(); }

  // In a layer, for what goes to another store, or comes from one. Blocks have the same form in all.

  using block_list = std::vector<std::int32_t>;

  /// What layers [first, last) hold of each request, the longest first.
  std::vector<held_request> held_in(std::uint32_t first, std::uint32_t last) const;
  /// Those of [first, last) that keep anything.
  std::vector<std::uint32_t> keeping(std::uint32_t first, std::uint32_t last) const;
  /// Its blocks, which are nobody's until they are given back. It holds nothing there any more.
  block_list take(std::uint64_t request, std::uint32_t layer);
  void give_back(const block_list& blocks);
  /// Blocks with room for these positions, in the place of what it holds there; until note_held() it holds nothing.
  /// None: there is not as much room, it holds as many, or the layer is not computed.
  block_list place(std::uint64_t request, std::uint32_t layer, std::uint32_t positions);
  /// Its blocks there have positions [0, positions). It has blocks; if it holds none of them, these are free.
  void note_held(std::uint64_t request, std::uint32_t layer, std::uint32_t positions);
  /// Of that layer: its values in the pool.
  at::Tensor block(std::int32_t number, std::uint32_t layer) const;
  std::int64_t block_values(std::uint32_t layer) const;
  std::int64_t largest_block_values() const { return pool_.size(1); }

private:
  friend class cache_pass;

  struct kept_layer {
    std::uint32_t held = 0;
    block_list blocks;
  };
  using kept_request = std::map<std::uint32_t, kept_layer>; ///< by layer

  bool extend(block_list& blocks, std::size_t wanted);
  const kept_layer* find(std::uint64_t request, std::uint32_t layer) const;

  const kept_shapes all_;
  kept_shapes computed_; ///< of these
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
