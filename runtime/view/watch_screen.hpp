#pragma once

// The screen of `watch`. Pure: a status, a moment and a size in, lines out.

#include "protocols/client/client.hpp"
#include "runtime/view/watch_events.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// What a piece of text means to its reader; the terminal makes colours and weights of it.
enum class look : std::uint8_t {
  plain,
  strong,  ///< titles
  faint,   ///< captions, what is not in use
  good,    ///< what runs
  warning, ///< what may need attention: notices, losses, no protection
  bad,     ///< failures
};

struct piece {
  std::string text; ///< UTF-8; each character takes one column
  look how = look::plain;

  friend bool operator==(const piece&, const piece&) = default;
};

using screen_line = std::vector<piece>;

struct screen_size {
  int columns = 80;
  int rows = 24;

  friend bool operator==(const screen_size&, const screen_size&) = default;
};

/// At most as many lines as there are rows, none wider than the columns. Made for 80×24 and more; of what has no room
/// on a smaller screen, events go first. `job` 0: there is none yet. `away`: why no answer comes; empty: it does.
std::vector<screen_line> render(const status_reply& x, std::uint64_t job, const moment& now, screen_size size,
                                const std::string& away = {});

/// Its text alone.
std::string to_string(const screen_line& x);

} // namespace parcae
