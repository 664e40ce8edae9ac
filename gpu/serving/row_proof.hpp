#pragma once

// Which sizes of passes leave a row's bits alone. Products of matrices are computed by kernels that are chosen by how
// many rows there are, and some treat rows differently by their place; nobody says which. So it is tried, where and
// with as many threads as rows will be computed.

#include "gpu/serving/cache_store.hpp"

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

/// What was seen to hold.
struct row_proof {
  std::uint32_t reference = 1; ///< the size whose bits a row has
  /// Rising, the reference among them. A row has these bits in passes of each, in any place, beside any others.
  std::vector<std::uint32_t> sizes;
  kept_shapes shapes; ///< of all layers of the model

  std::uint32_t largest() const { return sizes.back(); }
  /// The first size with room for `rows`, of which there are at most `largest`.
  std::uint32_t size_for(std::size_t rows) const;
};

/// It matters which row a row is, or beside which others: what it says has the layer and the size.
struct row_proof_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Tries the model's layers, of built-in ones each that differs from those before, on 720 drawn rows with drawn
/// parameters: kernels are chosen by shape, not by value. The reference is the first of `candidates` in which no order
/// of rows and no neighbours change a bit; of `others` those are used that give the same bits. Blocks, about as long as
/// a dozen times 720 rows take. Throws row_proof_error if there is no such candidate, and what layers throw.
row_proof prove_rows(const model_specification& model, const tensor_device& on = processor(),
                     std::initializer_list<std::uint32_t> candidates = {16, 24, 48, 96, 1},
                     std::initializer_list<std::uint32_t> others = {4, 8, 24, 32, 48, 64, 96, 128, 192});

} // namespace parcae
