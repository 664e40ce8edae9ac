#pragma once

// A job that serves: its gateways, and whether its ranks are there. Gateways are no participants of generations: the
// one that came first is told who serves, others stand by. Pure; knows nothing of the table.

#include "actors/conductor/generations.hpp"
#include "actors/conductor/roster.hpp"
#include "actors/conductor/service_meter.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/client/client.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

class service {
public:
  /// Whose pipelines a gateway goes by; by default nobody's.
  struct way {
    generation current;
    std::uint32_t width = 0;

    friend bool operator==(const way&, const way&) = default;
  };

  // Gateways

  /// One that was lost may join again.
  void join(const slot_id& slot, std::string http);
  void lose(const slot_id& slot);
  bool has(const slot_id& slot) const { return find(slot) != gateways_.end(); }
  /// All of them.
  std::vector<slot_id> gateways() const;
  /// Whether it has answered all that it has taken.
  bool is_idle(const slot_id& slot) const;

  void hear(const slot_id& slot, const routed& x);

  /// What it was told may be lost.
  void forget_told(const slot_id& slot);

  /// Whether nobody is to be told anything.
  bool is_told(const way& x) const;
  /// Who is to be told by what it goes from now on: who is in use by this, others by nobody's. Taken for told then.
  std::vector<std::pair<slot_id, way>> to_be_told(const way& x);

  // Ranks

  /// A rank is there. True: all ranks have said so since this was true last.
  bool hear(const trained_generation& g, const slot_id& rank, const served& x);

  // For plans of caches

  /// Into the plan, from the generation that served last: of slots that are there and whose pipeline is not given up.
  /// `layer_bytes`: of a position, by layer. Returns what was decided, for people; empty: nothing was.
  std::string plan_caches(const generations& all, const roster& slots, const std::vector<std::uint64_t>& layer_bytes,
                          double link_bytes_per_ms, prepare& into) const;

  /// Sizes that give the same bits in all ranks, rising. None: one has not said its own yet, to a new manager.
  static std::vector<std::uint32_t> common_sizes(const trained_generation& g, const roster& slots);

  /// What it is planned by.
  const service_measures& measured() const { return meter_.known(); }
  void use(const std::vector<std::uint32_t>& sizes) { meter_.use(sizes); }

  service_status view() const;

  /// What nobody answers for, for people; empty: nothing.
  std::string problem() const;

private:
  struct gateway {
    slot_id slot;
    std::string http;
    std::optional<way> told;
    std::optional<routed> said; ///< last
  };
  std::vector<gateway>::const_iterator find(const slot_id& slot) const;
  std::vector<gateway>::iterator find(const slot_id& slot);

  std::vector<gateway> gateways_;  ///< in the order of their coming
  generation of_;                  ///< that the ranks are of
  std::set<slot_id> heard_;        ///< ranks, since all had been
  std::map<slot_id, served> last_; ///< of each rank of it
  service_meter meter_;
  std::pair<generation, std::vector<std::uint64_t>> cached_; ///< as a gateway said last of one that served
};

} // namespace parcae
