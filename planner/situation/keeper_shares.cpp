#include "planner/situation/keeper_shares.hpp"

#include "protocols/values/state.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace parcae {

namespace {

class sharing {
public:
  sharing(const std::vector<keeper_room>& keepers, const std::vector<std::uint64_t>& layer_bytes) :
      keepers_(keepers), bytes_(layer_bytes), shares_(keepers.size()), load_(keepers.size()),
      copies_(layer_bytes.size()), apart_(layer_bytes.size()), by_size_(layer_bytes.size()) {
    std::iota(by_size_.begin(), by_size_.end(), 0u);
    std::ranges::stable_sort(by_size_, std::ranges::greater{}, [&](auto layer) { return bytes_[layer]; });
  }

  /// A first copy of every layer to one that is apart and holds it, or has room.
  void give_apart() {
    for (const bool anywhere : {false, true})
      for (const auto layer : by_size_)
        if (copies_[layer] == 0)
          if (const auto to = least_loaded([&](auto k) { return is_apart(k, layer) && can_take(k, layer, anywhere); }))
            put(*to, layer);
  }

  /// Gives the next copy of every layer that has `copies` already to a keeper that holds it, or `anywhere` with room.
  void give(std::uint32_t copies, bool anywhere) {
    for (const auto layer : by_size_) {
      if (copies_[layer] != copies)
        continue;
      auto to = least_loaded([&](std::size_t k) { return can_take(k, layer, anywhere); });
      if (!to && anywhere && copies == 0) // better than nowhere
        to = least_loaded([](std::size_t) { return true; });
      if (to)
        put(*to, layer);
    }
  }

  /// Moves a layer between the two that differ most, of those between which one can be moved. False: there are none.
  bool balance() {
    const auto tolerance = bytes_.empty() ? 0 : bytes_[by_size_.front()];
    std::vector<std::size_t> order(keepers_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::less{}, [&](auto k) { return load_[k]; });
    for (auto from = order.rbegin(); from != order.rend(); ++from)
      for (const auto to : order) {
        if (load_[*from] <= load_[to] + tolerance)
          break;
        if (const auto layer = best_to_move(*from, to)) {
          take_back(*from, *layer);
          put(to, *layer);
          return true;
        }
      }
    return false;
  }

  std::vector<std::vector<std::uint32_t>> take() const {
    std::vector<std::vector<std::uint32_t>> result;
    for (const auto& share : shares_)
      result.emplace_back(share.begin(), share.end());
    return result;
  }

private:
  bool is_apart(std::size_t k, std::uint32_t layer) const { return !keepers_[k].computed.contains(layer); }

  bool can_take(std::size_t k, std::uint32_t layer, bool anywhere) const {
    return !shares_[k].contains(layer) && fits(k, layer) && (anywhere || keepers_[k].held.contains(layer));
  }

  bool fits(std::size_t k, std::uint32_t layer) const {
    return keepers_[k].bytes == 0 || keeper_versions * (load_[k] + bytes_[layer]) <= keepers_[k].bytes;
  }

  template <class Condition>
  std::optional<std::size_t> least_loaded(Condition can) const {
    std::optional<std::size_t> result;
    for (std::size_t k = 0; k < keepers_.size(); ++k)
      if (can(k) && (!result || load_[k] < load_[*result]))
        result = k;
    return result;
  }

  void put(std::size_t k, std::uint32_t layer) {
    shares_[k].insert(layer);
    load_[k] += bytes_[layer];
    ++copies_[layer];
    apart_[layer] += is_apart(k, layer);
  }

  void take_back(std::size_t k, std::uint32_t layer) {
    shares_[k].erase(layer);
    load_[k] -= bytes_[layer];
    --copies_[layer];
    apart_[layer] -= is_apart(k, layer);
  }

  /// Without the only copy that is apart becoming one that is not.
  bool may_move(std::uint32_t layer, std::size_t from, std::size_t to) const {
    return !is_apart(from, layer) || is_apart(to, layer) || apart_[layer] > 1;
  }

  /// That which leaves them nearest to equal; bringing it costs nothing if it is there.
  std::optional<std::uint32_t> best_to_move(std::size_t from, std::size_t to) const {
    const auto apart = load_[from] - load_[to];
    std::optional<std::uint32_t> result;
    auto least = std::pair(true, std::numeric_limits<std::uint64_t>::max());
    for (const auto layer : shares_[from]) {
      const auto moved = 2 * bytes_[layer];
      const auto left = std::pair(!keepers_[to].held.contains(layer), moved > apart ? moved - apart : apart - moved);
      if (bytes_[layer] > 0 && can_take(to, layer, true) && may_move(layer, from, to) && left < least) {
        least = left;
        result = layer;
      }
    }
    return result;
  }

  const std::vector<keeper_room>& keepers_;
  const std::vector<std::uint64_t>& bytes_;
  std::vector<std::set<std::uint32_t>> shares_; ///< by keeper
  std::vector<std::uint64_t> load_;             ///< by keeper: bytes of one version
  std::vector<std::uint32_t> copies_;           ///< by layer, so far
  std::vector<std::uint32_t> apart_;            ///< by layer: of these, on machines that do not compute it
  std::vector<std::uint32_t> by_size_;          ///< layers, the largest first
};

} // namespace

std::vector<std::vector<std::uint32_t>> share_among_keepers(const std::vector<keeper_room>& keepers,
                                                            const std::vector<std::uint64_t>& layer_bytes,
                                                            std::uint32_t copies) {
  sharing result(keepers, layer_bytes);
  if (keepers.empty())
    return {};
  result.give_apart();
  for (const bool anywhere : {false, true})
    for (std::uint32_t copy = 0; copy < copies; ++copy)
      result.give(copy, anywhere);
  while (result.balance()) {
  }
  return result.take();
}

} // namespace parcae
