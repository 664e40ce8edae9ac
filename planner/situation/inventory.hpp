#pragma once

// What counts of what is held: the chain of committed versions, the decision on an open step, and the newest version
// from which training can go on (HOW_IT_WORKS.md, "A step, and when it counts").

#include "protocols/choreography/choreography.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// The committed history of a job. A version (s, h) is valid only if base(h) < s ≤ last(h); (0, 0) is always valid.
class commit_chain {
public:
  commit_chain() = default;
  explicit commit_chain(std::vector<chain_link> links) : links_(std::move(links)) {}

  /// Appends a running generation; its base must be the last version of the chain.
  void begin(generation g, std::uint64_t base);

  /// The running generation ended with `last` steps committed.
  void end(generation g, std::uint64_t last);

  /// Voids everything above `steps`.
  void cut(std::uint64_t steps);

  bool valid(const version& x) const;

  /// The version that step count `steps` has in the chain, if it was committed ((0, 0) for 0).
  std::optional<version> at(std::uint64_t steps) const;

  /// Version the last generation that ended reached; (0, 0) for an empty chain.
  version newest() const;

  /// Its last generation may be running.
  bool is_open() const { return !links_.empty() && links_.back().last == UINT64_MAX; }

  const std::vector<chain_link>& links() const { return links_; }

private:
  std::vector<chain_link> links_;
};

/// One live holder of state.
struct holder {
  slot_id slot;
  bool keeper = false;
  inventory held;
};

/// What a live rank said in ABORTED.
struct rank_report {
  std::uint32_t rank = 0;
  aborted said;
};

/// What to tell the ranks of an aborted generation, and the version it ends at.
struct step_decision {
  commit_result result;   ///< step == no_step: abort
  std::uint64_t last = 0; ///< steps committed when the decision is carried out
  std::string reason;     ///< for people
};

/// Decides the open step of an aborted generation (HOW_IT_WORKS.md, "After a loss"). `base` is the
/// version it started from, `reports` one per live rank, `keepers` what the keepers hold (with the results that belong
/// to their versions). A stage without a live rank and without a keeper does not stop a decision from being made: what
/// is then missing shows in newest_complete.
step_decision decide_open_step(const placement& of, generation g, std::uint64_t base,
                               const std::vector<rank_report>& reports, const std::vector<kept>& keepers);

/// The newest valid version of which `copies` holders have each of the `layers` layers; (0, 0) if there is none.
version newest_complete(const commit_chain& chain, std::uint32_t layers, const std::vector<holder>& holders,
                        std::uint32_t copies = 1);

/// By layer: how many hold it at that version.
std::vector<std::uint32_t> copies_at(const version& x, std::uint32_t layers, const std::vector<holder>& holders);

} // namespace parcae
