#pragma once

// Checkpoints in a store: on disk, or elsewhere. A checkpoint is a place; each keeper that holds layers of the version
// writes into it, of its own name, a safetensors file with parameters and optimizer state, and a manifest. The manifest
// comes last: a share without one does not count. Everything here waits for the store; torch-free.

#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/client/manifest.hpp"
#include "protocols/model/model_description.hpp"
#include "protocols/model/snapshot.hpp"
#include "protocols/store/store.hpp"

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// A checkpoint is not there, not complete or damaged: one line that says which, and where. That a store cannot be
/// reached says nothing of it, and is a store_error.
struct checkpoint_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What to write: `manifest` but `tensors`, `model_layers` and `layers`, which follow from the rest.
struct checkpoint_share {
  checkpoint_manifest manifest;
  std::vector<std::shared_ptr<const shard_bytes>> shards; ///< in layer order, all at manifest.at
};

using store_ptr = std::shared_ptr<object_store>;

/// Writes one keeper's share. Throws std::system_error, store_error, or checkpoint_error once *cancelled (seen between
/// two layers); then nothing of it counts. `attempt` empty: what it wrote there before is replaced, nobody else writes
/// its name there. Else a word that no other attempt has, of 16 hexadecimal digits, which becomes part of the tensors'
/// name: nothing that counts is ever replaced. A share that is there already is not written again; one of other layers
/// is put beside it; and of several who write different bits under one name the first to put its manifest has won, the
/// others throw checkpoint_error.
void write_share(object_store& to, const std::string& keeper, checkpoint_share share,
                 const std::atomic<bool>& cancelled, const std::string& attempt = {});

/// Whether an object is of that keeper's share, whole or not.
bool is_of_share(std::string_view object, const std::string& keeper);

bool is_manifest(std::string_view object); ///< by its name

/// Whether a manifest is at that place. Throws store_error.
bool has_manifest(const object_store& at);

/// The shares at one place, or at those of several keepers. Not thread-safe.
class checkpoint_reader {
public:
  /// Reads the manifests. Throws checkpoint_error: there is none, one is damaged, or they are not of one version and
  /// state; or store_error.
  explicit checkpoint_reader(const std::vector<store_ptr>& places);

  const checkpoint_manifest& manifest() const { return shares_.front().manifest; } ///< `layers` are of one share only
  const model_description& model() const { return model_; }
  const std::string& places() const { return places_; } ///< for messages
  std::vector<std::uint32_t> layers() const;            ///< stored here, ascending
  std::vector<std::uint32_t> missing() const;           ///< the others of the model
  bool is_complete() const;                             ///< nothing is missing, nor the tensors of any share

  /// A layer's state, compared with its checksum. Throws checkpoint_error or store_error.
  shard_bytes read(std::uint32_t layer);

private:
  struct share {
    checkpoint_manifest manifest;
    store_ptr store;
    std::string where;                      ///< its tensors, for messages
    bool has_tensors;                       ///< they were there when the manifest was read
    std::unique_ptr<safetensors_file> file; ///< null: not opened yet
  };

  void add_shares(const store_ptr& place);

  std::string places_;
  std::vector<share> shares_;
  std::map<std::uint32_t, std::pair<std::size_t, std::uint64_t>> where_; ///< by layer: share and checksum
  model_description model_;
};

/// The place itself if a manifest is there, else the newest complete checkpoint directly below it, else the newest: the
/// rest may be with other keepers. Throws checkpoint_error if there is none, or store_error.
store_ptr find_checkpoint(const store_ptr& place);

/// The version of the newest complete checkpoint directly below; nothing: there is none. Throws store_error.
std::optional<version> newest_complete(const object_store& run);

/// All that is in that place. Throws store_error.
void remove_checkpoint(object_store& of);

/// The version that a checkpoint's name says: "200@3".
std::optional<version> version_in(std::string_view name);

/// Writes the parameters as one safetensors file, as PyTorch's `safetensors.torch.save_model` does: of tied tensors the
/// first, and the other's name in the metadata. Throws checkpoint_error or std::system_error.
void export_parameters(checkpoint_reader& from, const std::filesystem::path& output);

/// "0-3, 7": for messages.
std::string list_of(const std::vector<std::uint32_t>& layers);

} // namespace parcae
