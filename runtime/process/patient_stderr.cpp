#include "runtime/process/patient_stderr.hpp"

#include "protocols/base/locks.hpp"
#include "protocols/base/text.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_bytes = 1 << 20;
constexpr std::chrono::milliseconds patience{50}, farewell{1'000};

/// As spdlog's own sinks colour them.
std::string_view colour_of(spdlog::level::level_enum x) {
  static constexpr std::array<std::string_view, 6> all{"\033[37m",        "\033[36m",        "\033[32m",
                                                       "\033[33m\033[1m", "\033[31m\033[1m", "\033[1m\033[41m"};
  return all.at(static_cast<std::size_t>(x));
}

bool is_terminal() {
  static const bool result = ::isatty(STDERR_FILENO) != 0;
  return result;
}

/// What cannot be written is given up.
void write_out(std::string_view text) {
  while (!text.empty()) {
    const auto n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno != EINTR)
      return;
    text.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
}

} // namespace

struct patient_stderr::writer {
  void put(std::string line) {
    lock held(mutex);
    bytes += line.size();
    for (lines.push_back(std::move(line)); bytes > max_bytes; ++left_out) {
      bytes -= lines.front().size();
      lines.pop_front();
    }
    changed.notify_all();
    if (!stuck)
      stuck = !wait_until_written(held, patience);
  }

  void run() {
    lock held(mutex);
    for (;;) {
      while (lines.empty() && !over)
        held.wait(changed);
      if (lines.empty())
        return;
      auto text = left_out > 0 ? counted(left_out, "line") + " left out here, as nobody read them\n" : std::string();
      text += lines.front();
      bytes -= lines.front().size();
      lines.pop_front();
      left_out = 0;
      writing = true;
      held.give_back();
      write_out(text);
      held.take_again();
      writing = false;
      stuck = stuck && !lines.empty();
      changed.notify_all();
    }
  }

  bool wait_until_written(lock& held, std::chrono::milliseconds limit) NEEDS_LOCK(mutex) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while ((writing || !lines.empty()) && std::chrono::steady_clock::now() < until)
      held.wait_until(changed, until);
    return !writing && lines.empty();
  }

  void say_farewell() {
    lock held(mutex);
    wait_until_written(held, farewell);
  }

  void end() {
    const lock held(mutex);
    over = true;
    changed.notify_all();
  }

  parcae::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> lines GUARDED_BY(mutex);
  std::size_t bytes GUARDED_BY(mutex) = 0;
  std::size_t left_out GUARDED_BY(mutex) = 0; ///< before the first of the lines
  bool writing GUARDED_BY(mutex) = false;
  bool stuck GUARDED_BY(mutex) = false; ///< nobody read within `patience`: logging does not wait
  bool over GUARDED_BY(mutex) = false;
};

patient_stderr::patient_stderr() : writer_(std::make_shared<writer>()) {
  std::thread([to = writer_] { to->run(); }).detach();
}

patient_stderr::~patient_stderr() {
  writer_->say_farewell();
  writer_->end();
}

void patient_stderr::flush_() {
  writer_->say_farewell();
}

void patient_stderr::sink_it_(const spdlog::details::log_msg& x) {
  spdlog::memory_buf_t line;
  formatter_->format(x, line);
  std::string text(line.data(), line.size());
  if (is_terminal() && x.color_range_end > x.color_range_start) {
    text.insert(x.color_range_end, "\033[m");
    text.insert(x.color_range_start, colour_of(x.level));
  }
  writer_->put(std::move(text));
  if (x.level == spdlog::level::critical)
    writer_->say_farewell();
}

} // namespace parcae
