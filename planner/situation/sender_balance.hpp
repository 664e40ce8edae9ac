#pragma once

// Who sends which layer: so that the busiest sender has least to send. Pure.

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// A layer that one destination needs, and the candidates that could send it.
struct demand {
  std::uint32_t layer;
  std::uint32_t destination;                  ///< rank
  const std::vector<std::uint32_t>* possible; ///< candidates, sorted
  std::uint32_t source = 0;                   ///< one of them
};

/// Takes load off the busiest senders along shortest chains "a's demand goes to b, b's to c …", as long as the load of
/// the busiest falls without another rising to it. Optimal for layers of equal size (Harvey et al., Semi-matchings for
/// bipartite graphs); else a good heuristic, as the problem is NP-hard.
class sender_balance {
public:
  /// `demands`, with a source each, and `load`, bytes by sender, are changed. All three must outlive this.
  sender_balance(std::vector<demand>& demands, std::span<const std::uint64_t> layer_bytes,
                 std::vector<std::uint64_t>& load);

  void improve();

private:
  std::uint64_t least_possible() const;
  bool relieve(std::uint32_t busiest);
  bool is_better(const std::vector<std::size_t>& by, std::uint32_t busiest, std::uint32_t end) const;
  std::uint32_t hand_over(std::size_t i, std::uint32_t to);

  std::vector<demand>& demands_;
  std::span<const std::uint64_t> layer_bytes_;
  std::vector<std::uint64_t>& load_;
  std::vector<std::vector<std::size_t>> sent_by_; ///< by sender: demands, ascending
};

} // namespace parcae
