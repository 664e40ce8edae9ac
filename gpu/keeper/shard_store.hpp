#pragma once

// What a keeper holds of one job, and which versions it may drop (HOW_IT_WORKS.md, "Keepers"). Plain data,
// single-threaded.

#include "protocols/choreography/choreography.hpp"
#include "protocols/model/snapshot.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace parcae {

/// Whether the chain says that `x` is void. A version of a generation newer than all in the chain is not: the chain
/// does not know of it yet.
bool is_void(const version& x, const std::vector<chain_link>& chain);

class shard_store {
public:
  using shard_ptr = std::shared_ptr<const shard_bytes>;

  /// Takes a shard, unless it is void or older than what is safe. If the layer then has more than keeper_versions the
  /// oldest goes, but not what is complete or safe as last confirmed. Returns whether anything changed.
  bool add(shard_ptr x, const commit_result& result);

  /// Drops what is void by `chain`, and what is older than `safe`; `newest` is complete. A shard just being sent stays
  /// alive by its pointer.
  void confirm(const version& newest, const version& safe, const std::vector<chain_link>& chain);

  /// The job goes back to `at`: that version, and newer ones, are taken again.
  void go_back(const version& at);

  shard_ptr find(std::uint32_t layer, const version& at) const; ///< null if not held
  inventory held() const;                                       ///< sorted by layer, then version
  std::vector<commit_result> results() const;                   ///< by version
  commit_result result_of(const version& at) const;             ///< of the exchange that made it, if any of it is held
  /// Of the layers held at `at`; takes milliseconds per MiB. `with_course`: the layer whose last part is a
  /// validation_course.
  std::vector<layer_digest> digests(const version& at, std::optional<std::uint32_t> with_course = {}) const;
  std::uint32_t layers_at(const version& at) const; ///< how many are held

private:
  void drop_unused_results();

  std::map<std::uint32_t, std::map<version, shard_ptr>> layers_; ///< by layer
  std::map<version, commit_result> results_;
  version newest_; ///< confirmed to be complete
  version safe_;
  std::vector<chain_link> chain_;
};

} // namespace parcae
