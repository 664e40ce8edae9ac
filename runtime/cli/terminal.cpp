#include "runtime/cli/terminal.hpp"

#include "runtime/view/screen_text.hpp"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <cstring>

// Last: its macros have everyday names.
#define NCURSES_NOMACROS 1
#include <curses.h>

namespace parcae {

struct terminal::implementation {
  SCREEN* screen = nullptr;
  bool unicode = false;
  bool colours = false;

  attr_t attributes_of(look x) const {
    const auto colour = [&](int pair) -> attr_t { return colours ? COLOR_PAIR(pair) : A_NORMAL; };
    switch (x) {
    case look::plain:
      return A_NORMAL;
    case look::strong:
      return A_BOLD;
    case look::faint:
      return A_DIM;
    case look::good:
      return colour(1);
    case look::warning:
      return colour(2) | (colours ? A_NORMAL : A_UNDERLINE);
    case look::bad:
      return colour(3) | A_BOLD;
    }
    return A_NORMAL;
  }
};

bool can_draw() {
  const char* kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && kind && *kind && std::strcmp(kind, "dumb") != 0;
}

std::unique_ptr<terminal> terminal::open() {
  auto x = std::make_unique<implementation>();
  // Only how characters are encoded: numbers are written as everywhere.
  std::setlocale(LC_CTYPE, "");
  x->unicode = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  x->screen = newterm(nullptr, stdout, stdin);
  if (!x->screen)
    return nullptr;
  cbreak();
  noecho();
  curs_set(0);
  const char* no_colour = std::getenv("NO_COLOR");
  x->colours = !(no_colour && *no_colour) && has_colors() && start_color() == OK && use_default_colors() == OK;
  if (x->colours) {
    init_pair(1, COLOR_GREEN, -1);
    init_pair(2, COLOR_YELLOW, -1);
    init_pair(3, COLOR_RED, -1);
  }
  return std::unique_ptr<terminal>(new terminal(std::move(x)));
}

terminal::terminal(std::unique_ptr<implementation> x) : implementation_(std::move(x)) {}

terminal::~terminal() {
  if (!isendwin())
    endwin();
  delscreen(implementation_->screen);
}

screen_size terminal::size() const {
  winsize x{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &x) == 0 && x.ws_col > 0 && x.ws_row > 0)
    return {x.ws_col, x.ws_row};
  return {COLS, LINES};
}

void terminal::draw(const std::vector<screen_line>& lines) {
  if (const auto now = size(); is_term_resized(now.rows, now.columns)) {
    resize_term(now.rows, now.columns);
    clearok(stdscr, TRUE);
  }
  werase(stdscr);
  int row = 0;
  for (const auto& line : lines) {
    wmove(stdscr, row++, 0);
    for (const auto& piece : line) {
      wattrset(stdscr, static_cast<int>(implementation_->attributes_of(piece.how)));
      // The last column of the last line cannot be passed: an error there means nothing.
      waddstr(stdscr, implementation_->unicode ? piece.text.c_str() : ascii_of(piece.text).c_str());
    }
  }
  wattrset(stdscr, A_NORMAL);
  wrefresh(stdscr);
}

void terminal::suspend() {
  endwin();
  clearok(stdscr, TRUE);
}

} // namespace parcae
