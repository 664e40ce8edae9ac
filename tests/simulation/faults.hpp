#pragma once

// Faults put in by hand, which a simulation must find. They are put in where the parts meet: in the journal's store, in
// the executor's double, and in what is sent. Nothing of the product knows of them.

#include "protocols/choreography/messages.hpp"
#include "tests/simulation/observed.hpp"

#include <caf/message.hpp>

#include <array>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

namespace parcae::simulation {

enum class fault : std::uint8_t {
  none,
  unjournaled_entry,     ///< the conductor goes on from an entry that the journal does not have
  stale_decide,          ///< an executor applies a decision on a step that it has applied, or never had
  version_counted_twice, ///< the layers that a keeper holds at a version count once more, for those it lacks
  dropped_repeat,        ///< a command that is said again does not arrive
  early_release,         ///< RELEASE comes with ACTIVATE
};

struct named_fault {
  std::string_view name;
  fault what;
};

inline constexpr std::array<named_fault, 5> all_faults{{{"unjournaled_entry", fault::unjournaled_entry},
                                                        {"stale_decide", fault::stale_decide},
                                                        {"version_counted_twice", fault::version_counted_twice},
                                                        {"dropped_repeat", fault::dropped_repeat},
                                                        {"early_release", fault::early_release}}};

/// Those in what is sent.
class faulty_messages {
public:
  faulty_messages(fault what, const observed& seen) : fault_(what), seen_(seen) {}

  /// In the place of a command.
  std::vector<caf::message> in_place_of(const addressee& to, const command& what, const caf::message& message);
  /// In the place of a report.
  std::vector<caf::message> in_place_of(const slot_id& from, const report& what, const caf::message& message) const;

private:
  fault fault_;
  const observed& seen_;
  std::set<std::tuple<slot_id, std::size_t, generation>> said_;
};

} // namespace parcae::simulation
