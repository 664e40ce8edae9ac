#include "runtime/node/black_box.hpp"

#include "protocols/base/crash_stack.hpp"
#include "protocols/base/crash_words.hpp"
#include "protocols/base/text.hpp"
#include "protocols/values/log_context.hpp"

#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

namespace parcae {

struct black_box::content {
  std::atomic<std::uint64_t> written; ///< lines ever
  std::atomic<bool> ending;           ///< somebody writes `why`
  std::atomic<std::uint64_t> job;     ///< by then
  std::atomic<bool> ended;            ///< `why` is complete
  char why[line_bytes];
  char lines[max_lines][line_bytes]; ///< line n is in n mod max_lines; each ends with a 0
};

namespace {

// Only what a signal handler may call.
void copy(char (&to)[black_box::line_bytes], std::string_view text) {
  const auto part = clipped(text, sizeof to - 1);
  std::memcpy(to, part.data(), part.size());
  to[part.size()] = 0;
}

std::string to_string(const char (&from)[black_box::line_bytes]) {
  return {from, strnlen(from, sizeof from)};
}

/// That of this process, until its end.
std::shared_ptr<black_box>& own_box() {
  static auto& box = *new std::shared_ptr<black_box>;
  return box;
}

void on_crash(int signal) {
  char why[40] = "";
  ended_by_signal.copy(why, sizeof why - 1);
  if (const char* name = sigabbrev_np(signal))
    std::strncat(why, name, sizeof why - std::strlen(why) - 1);
  own_box()->note_end(why);
  // The handler was for one signal (SA_RESETHAND): raised again it ends the process, also if it was sent by kill(2).
  raise(signal);
}

[[noreturn]] void on_uncaught_exception() {
  std::string what(uncaught_exception);
  if (const auto x = std::current_exception())
    try {
      std::rethrow_exception(x);
    } catch (const std::exception& e) {
      what += std::string(": ") + e.what();
    } catch (...) {
    }
  spdlog::critical("{}", what);
  own_box()->note_end(what);
  std::abort();
}

} // namespace

black_box::black_box() : descriptor_(memfd_create("parcae-black-box", 0)) {
  if (descriptor_ < 0 || ftruncate(descriptor_, sizeof(content)) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make memory for the last log lines");
  map(); // all zero: empty
}

black_box::black_box(int descriptor) : descriptor_(descriptor) {
  struct stat x {};
  if (fstat(descriptor_, &x) != 0 || x.st_size != sizeof(content))
    throw std::system_error(EINVAL, std::generic_category(), "not a black box");
  map();
}

void black_box::map() {
  void* memory = mmap(nullptr, sizeof(content), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "cannot map the last log lines");
  content_ = static_cast<content*>(memory);
}

black_box::~black_box() {
  munmap(content_, sizeof(content));
  close(descriptor_);
}

void black_box::write(std::string_view line) noexcept {
  const auto n = content_->written.load(std::memory_order_relaxed);
  copy(content_->lines[n % max_lines], line);
  content_->written.store(n + 1, std::memory_order_release);
}

void black_box::note_end(std::string_view why) noexcept {
  if (content_->ending.exchange(true))
    return;
  copy(content_->why, why);
  content_->job = current_log_context().job.load();
  content_->ended = true;
}

std::string black_box::end() const {
  return content_->ended ? to_string(content_->why) : std::string();
}

std::uint64_t black_box::job() const {
  return content_->job;
}

std::vector<std::string> black_box::lines() const {
  std::vector<std::string> result;
  const auto written = content_->written.load(std::memory_order_acquire);
  for (auto n = written - std::min<std::uint64_t>(written, max_lines); n < written; ++n)
    result.push_back(to_string(content_->lines[n % max_lines]));
  return result;
}

void note_crashes(std::shared_ptr<black_box> box) {
  own_box() = std::move(box);
  use_crash_stack();
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER | SA_ONSTACK);
  for (const auto signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction present {};
    if (sigaction(signal, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) // else a sanitizer wants it
      sigaction(signal, &action, nullptr);
  }
  std::set_terminate(on_uncaught_exception);
}

} // namespace parcae
