#pragma once

// Checkpoints on disk. A checkpoint is a folder; each keeper that holds layers of the version writes into it, of its
// own name, a safetensors file with parameters and optimizer state, and a manifest. The manifest comes last: a share
// without one does not count. Everything here blocks on the disk; torch-free.

#include "gpu/model/model_description.hpp"
#include "gpu/model/snapshot.hpp"
#include "protocols/client/manifest.hpp"

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

/// A checkpoint is not there, not complete or damaged: one line that says which, and where.
struct checkpoint_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What to write: `manifest` but `tensors`, `model_layers` and `layers`, which follow from the rest.
struct checkpoint_share {
  checkpoint_manifest manifest;
  std::vector<std::shared_ptr<const shard_bytes>> shards; ///< in layer order, all at manifest.at
};

/// Writes one keeper's share; what it wrote there before is replaced. Throws std::system_error, or checkpoint_error
/// once *cancelled (seen between two layers); then nothing of it counts.
void write_share(const std::filesystem::path& folder, const std::string& keeper, checkpoint_share share,
                 const std::atomic<bool>& cancelled);

/// The shares in one folder, or in those of several keepers. Not thread-safe.
class checkpoint_reader {
public:
  /// Reads the manifests. Throws checkpoint_error: there is none, one is damaged, or they are not of one version.
  explicit checkpoint_reader(const std::vector<std::filesystem::path>& folders);

  const checkpoint_manifest& manifest() const { return shares_.front().manifest; } ///< `layers` are of one share only
  const model_description& model() const { return model_; }
  const std::string& folders() const { return folders_; } ///< for messages
  std::vector<std::uint32_t> layers() const;              ///< stored here, ascending
  std::vector<std::uint32_t> missing() const;             ///< the others of the model

  /// A layer's state, compared with its checksum. Throws checkpoint_error.
  shard_bytes read(std::uint32_t layer);

private:
  struct share {
    checkpoint_manifest manifest;
    std::filesystem::path tensors;
  };

  std::string folders_;
  std::vector<share> shares_;
  std::map<std::uint32_t, std::pair<std::size_t, std::uint64_t>> where_; ///< by layer: share and checksum
  model_description model_;
};

/// The folder itself if a manifest is in it, else the newest complete checkpoint directly below it, else the newest:
/// the rest may be with other keepers. Throws checkpoint_error if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& folder);

/// Writes the parameters as one safetensors file, as PyTorch's `safetensors.torch.save_model` does: of tied tensors the
/// first, and the other's name in the metadata. Throws checkpoint_error or std::system_error.
void export_parameters(checkpoint_reader& from, const std::filesystem::path& output);

/// "0-3, 7": for messages.
std::string list_of(const std::vector<std::uint32_t>& layers);

} // namespace parcae
