#pragma once

// Whether what a process holds levels off: memory, descriptors, threads.

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace parcae {

/// What a process held at some time.
struct holding {
  static constexpr std::size_t kinds = 3; ///< KiB resident, descriptors, threads

  std::chrono::steady_clock::time_point at;
  std::array<double, kinds> held;
  double models = 0; ///< that its slots have a place in: half a one for each place in two stages
};

/// Of a life that lasted for three minutes: in its last third it must not have held more than in the second by a tenth
/// and a little. What it did so of; of a shorter one nothing. Nor of memory if it had more of a model at last: it keeps
/// what the largest share takes (gpu/executor/memory_settings.hpp).
std::vector<std::string> growth_of(std::span<const holding> life);

/// Not thread-safe.
class process_watch {
public:
  using clock = std::chrono::steady_clock;

  /// What it holds now, at most once a second; a process that is not there any more is passed over. A name may be that
  /// of another process than before.
  /// `models`: see holding.
  void look(const std::string& name, pid_t process, double models = 0);

  /// See growth_of. One line for each life that grew.
  std::vector<std::string> growing() const;
  /// Lives that growing() can judge; of processes of that name.
  std::size_t judged() const;
  std::size_t judged(const std::string& name) const;

private:
  using life = std::vector<holding>;

  /// By name, process and when that began (clock ticks since boot): numbers of processes come again.
  std::map<std::tuple<std::string, pid_t, std::uint64_t>, life> lives_;
};

} // namespace parcae
