#pragma once

// What a course did to its machine: how many processors each process used, and how long who is to run waits for one.

#include "tests/bench/measure.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {

/// Of processes by name, of this one ("clients"), and of all else that runs here ("others").
class machine_watch {
public:
  using shares = std::vector<std::pair<std::string, double>>; ///< processors, from the beginning to now

  explicit machine_watch(std::vector<std::pair<std::string, pid_t>> processes) :
      processes_(std::move(processes)), begin_(now()), prober_([this](const std::stop_token& stop) { probe(stop); }) {}

  shares used() const {
    const auto end = now();
    const auto passed = end.back() - begin_.back();
    shares result;
    double known = 0;
    for (std::size_t i = 0; i < processes_.size(); ++i)
      known += result.emplace_back(processes_[i].first, (end[i] - begin_[i]) / passed).second;
    const auto own = processes_.size(), all = own + 1;
    known += result.emplace_back("clients", (end[own] - begin_[own]) / passed).second;
    result.emplace_back("others", std::max(0.0, (end[all] - begin_[all]) / passed - known));
    return result;
  }

  /// The longest that a thread which has next to nothing to do was woken too late.
  double longest_delay_ms() const { return longest_ms_; }

private:
  /// ms: of each process, this one, all processors, the clock.
  std::vector<double> now() const {
    std::vector<double> result;
    for (const auto& [name, pid] : processes_) {
      clockid_t clock{};
      result.push_back(clock_getcpuclockid(pid, &clock) == 0 ? clock_ms(clock) : 0);
    }
    result.push_back(cpu_ms());
    std::ifstream stat("/proc/stat");
    std::string word;
    stat >> word;
    constexpr int idle = 3, iowait = 4, steal = 7; // the last: ours by name, another machine's in fact
    double busy = 0, x = 0;
    for (int i = 0; i <= steal && stat >> x; ++i)
      busy += i == idle || i == iowait ? 0 : x;
    result.push_back(1e3 * busy / static_cast<double>(::sysconf(_SC_CLK_TCK)));
    result.push_back(clock_ms(CLOCK_MONOTONIC));
    return result;
  }

  void probe(const std::stop_token& stop) {
    constexpr std::chrono::milliseconds pause{2};
    for (auto at = steady::now() + pause; !stop.stop_requested(); at = steady::now() + pause) {
      std::this_thread::sleep_until(at);
      longest_ms_ = std::max(longest_ms_.load(), since_ms(at));
    }
  }

  const std::vector<std::pair<std::string, pid_t>> processes_;
  const std::vector<double> begin_;
  std::atomic<double> longest_ms_ = 0;
  std::jthread prober_; ///< last: uses all of the above
};

} // namespace parcae
