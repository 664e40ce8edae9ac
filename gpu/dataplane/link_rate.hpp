#pragma once

// What the link to other machines gives, by what the kernel counts of the connections over it. Pure, but for those
// counts.

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

namespace parcae {

/// What the kernel has counted of a connection.
struct link_use {
  std::uint64_t bytes = 0;           ///< that have arrived at the other end
  std::chrono::microseconds busy{0}; ///< in which there was something to bring there, by the kernel's ticks
};

/// Both ends have the same address.
bool stays_on_machine(int socket);

/// It sends as fast as the link lets it.
bool is_unpaced(int socket);

std::optional<link_use> use_of_link(int socket);

/// The most that connections brought over within the last minute or so. Where they share the link with others, or the
/// receiver's is slower, it gives more than that, but never less.
class link_rate {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Less in a look shows little: ticks are long, and short bursts may pass faster than what follows.
  static constexpr std::chrono::milliseconds least_busy{50};
  /// What was seen is forgotten after once to twice that time: links change.
  static constexpr std::chrono::seconds age{30};

  /// Uses of connections between two looks, the second now; both that long apart.
  void note(std::span<const link_use> uses, std::chrono::microseconds between, time_point now);

  /// 0: nothing was seen.
  double bytes_per_s(time_point now) const;

private:
  std::array<double, 2> most_{}; ///< of this age, and of the one before
  time_point began_;             ///< this age
};

} // namespace parcae
