#pragma once

// Which hosts have vanished without a word, by what the kernel knows of the connections to them. A process that stands
// still is no matter: its kernel answers. Pure, but for the question to the kernel.

#include <netinet/tcp.h>

#include <chrono>
#include <optional>

namespace parcae {

/// Of one connection to another host.
struct host_silence {
  std::chrono::milliseconds silent{0}; ///< since anything came
  std::chrono::milliseconds limit{0};  ///< longer is too long, if it owes an answer
  bool owes_answer = false;            ///< what was sent was sent again, and nothing came
};

/// Who is heard sends something each 500 ms, and so do we: heartbeats. What is lost is sent again after some 200 and
/// 400 ms, by either side. So where a link stands still for 0.4 s a host is silent for 0.9 s at most.
inline constexpr std::chrono::milliseconds longest_silence{1'000};
/// If a host was heard so lately, it is sure that frames come through.
inline constexpr std::chrono::milliseconds heard_lately{500};

host_silence silence_in(const tcp_info& x);

/// What the kernel knows; none: it is no connection any more.
std::optional<host_silence> silence_of(int socket);

/// The host is gone. `another_is_heard`: lately, from elsewhere; else it may be this host that nobody hears.
inline bool has_vanished(const host_silence& x, bool another_is_heard) {
  return another_is_heard && x.owes_answer && x.silent > x.limit;
}

} // namespace parcae
