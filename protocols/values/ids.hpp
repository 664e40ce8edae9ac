#pragma once

// Strong identifiers. Plain values: comparable, hashable as map keys through <=>, and serialisable by CAF's inspect
// (no CAF header is needed here).

#include "protocols/base/described.hpp"

#include <compare>
#include <cstdint>
#include <string>

namespace parcae {

/// An integer that cannot be mixed up with another kind of integer.
template <class Tag>
struct strong_number {
  std::uint64_t value = 0;

  friend auto operator<=>(const strong_number&, const strong_number&) = default;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, strong_number& x) {
    return f(x.value);
  }
};

/// A job, numbered from 1 in the order of submission.
using job_id = strong_number<struct job_tag>;

/// One placement of a job. Monotone within a job, from 1; 0 means "none". Every control and data message carries it.
using generation = strong_number<struct generation_tag>;

/// One life of an instance: random, so that a process that thaws is never taken for its successor.
using incarnation = strong_number<struct incarnation_tag>;

/// One device of one life of an instance (a CPU counts as a device).
struct slot_id {
  std::string instance; ///< the instance's name, unique among the living
  incarnation life;
  std::uint32_t index = 0; ///< device number within the instance

  friend auto operator<=>(const slot_id&, const slot_id&) = default;
};
BOOST_DESCRIBE_STRUCT(slot_id, (), (instance, life, index))

/// "name/index"; the incarnation is left out, people do not read it.
inline std::string to_string(const slot_id& x) {
  return x.instance + "/" + std::to_string(x.index);
}

} // namespace parcae
