#pragma once

// The manifest of one keeper's share of a checkpoint as a plain value, and its bytes (Cap'n Proto, manifest.capnp).

#include "protocols/base/described.hpp"
#include "protocols/values/job_specification.hpp"
#include "protocols/values/state.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// No manifest is larger, bytes; a larger file is refused before it is looked at.
inline constexpr std::size_t manifest_limit_bytes = 16 << 20;

struct stored_layer {
  std::uint32_t layer = 0;
  std::uint64_t checksum = 0; ///< XXH3-64 of all its parts, one after the other
};
BOOST_DESCRIBE_STRUCT(stored_layer, (), (layer, checksum))

struct checkpoint_manifest {
  version at;
  commit_result result; ///< of the step that made it
  job_specification specification;
  std::string data_digest;
  std::string tensors;            ///< name of the safetensors file, in the same folder
  std::uint32_t model_layers = 0; ///< how many make the checkpoint complete
  std::vector<stored_layer> layers;
};

std::vector<char> encode(const checkpoint_manifest& x);

/// The specification is decoded as it is. Throws std::runtime_error with one line on what is wrong.
checkpoint_manifest decode_manifest(std::span<const char> bytes);

} // namespace parcae
