#pragma once

// The tensors of an exported model's folder: its weights are version 0, its constants what graphs always need.
// Everything here blocks on the disk; torch-free.

#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/model/exported_model.hpp"

#include <cstddef>
#include <span>

namespace parcae {

/// Whether weights.safetensors has every tensor that model.json names, with its type and shape; reads its header only.
/// Throws exported_model_error.
void check_stored_weights(const model_specification& x);

/// As it is in the file.
safetensors_entry entry_of(const stored_tensor& x);

/// The file with an exported model's tensors. Not thread-safe; all methods throw exported_model_error.
class exported_weights {
public:
  explicit exported_weights(const model_specification& x);

  /// Reads a tensor's values, as many bytes as it has, and compares them with its digest.
  void read(const stored_tensor& tensor, std::span<std::byte> to);

  void require(const stored_tensor& tensor) const; ///< type and shape

  std::uint64_t size_of(const stored_tensor& tensor) const; ///< bytes of its values; requires it

private:
  safetensors_file file_;
  std::string path_;
};

} // namespace parcae
