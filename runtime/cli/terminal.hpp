#pragma once

// The whole terminal as a place to draw on (ncurses). For one thread.

#include "runtime/view/watch_screen.hpp"

#include <memory>
#include <vector>

namespace parcae {

/// Whether standard output is a terminal that can be drawn on, as far as can be known without touching it.
bool can_draw();

class terminal {
public:
  /// Takes the terminal over: its other screen, no echo, no cursor. Colours unless NO_COLOR is set or it has none;
  /// ASCII alone where the locale is not UTF-8. Nothing if the terminal's kind is not known here.
  static std::unique_ptr<terminal> open();

  /// Gives it back as it was.
  ~terminal();

  /// As the kernel knows it now.
  screen_size size() const;

  /// Shows these lines from the top, and nothing else. Only what differs from before is sent.
  void draw(const std::vector<screen_line>& lines);

  /// Gives the terminal back, for a while; draw() takes it over again and sends everything.
  void suspend();

private:
  struct implementation;

  explicit terminal(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
