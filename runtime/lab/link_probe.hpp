#pragma once

// How fast bytes go between two processes' data ports on this machine, measured with the communicator that training
// uses. Torch-free.

#include <vector>

namespace parcae {

struct link_measurement {
  struct point {
    double bytes = 0;
    double ms = 0;
  };
  std::vector<point> points; ///< one way, medians; bytes rising
  double latency_ms = 0;     ///< of a small message, until a thread that sleeps for it runs
  double bytes_per_ms = 0;   ///< of large ones
  double message_ms = 0;     ///< processor time to send a small message, or to sleep for it and receive it: the mean
  double message_ms_per_byte = 0; ///< besides, of larger ones
  /// Processor time of one member of an all-reduce in tree order, for a byte that it sends.
  double reduce_ms_per_byte = 0;
};

/// Takes about a second. Throws what ports and communicators throw.
link_measurement measure_link();

} // namespace parcae
