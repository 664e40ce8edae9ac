#pragma once

// A market on this machine: a feed of prices over HTTP, and a hook that starts nodes, as many as a trace has at the
// moment. What the trace takes away goes by notice or by SIGKILL. All of it can be made to fail.

#include "runtime/child/process.hpp"
#include "tests/support/web_double.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {

/// What a pool has to offer.
struct pool_trace {
  std::string pool;
  double usd_per_h = 1;                                                  ///< of an instance, by the clock on the wall
  std::vector<std::pair<std::chrono::milliseconds, unsigned>> available; ///< from when on how many; by time
};

/// How the hook answers.
enum class hook_conduct : std::uint8_t {
  good,
  fails,        ///< status 1
  hangs,        ///< until it is killed
  slow,         ///< a second late
  nonsense,     ///< does what it is told, and answers no JSON
  lies,         ///< starts nothing, and says that all is there
  starts_twice, ///< twice as many as are wanted
};

/// What the feed says.
enum class feed_conduct : std::uint8_t {
  good,
  away,    ///< 503
  hangs,   ///< until it is told otherwise
  garbage, ///< no line that means anything
  jumps,   ///< twenty times the price
  endless, ///< more than anybody reads
};

struct market_double_options {
  std::vector<pool_trace> pools;
  std::string node; ///< command that becomes a node, with {kind} and {place}
  /// The trace's time now; empty: since the double was made, 300 times as fast as this machine's.
  std::function<std::chrono::milliseconds()> time{};
  bool tells_available = false; ///< the feed says how many there are to be had, too
};

/// All methods from any thread. Whoever reads its feed must have gone before it goes. What it started is killed with
/// it.
class market_double {
public:
  explicit market_double(market_double_options options);
  ~market_double();
  market_double(const market_double&) = delete;
  market_double& operator=(const market_double&) = delete;

  std::string feed() const { return server_.url("127.0.0.1") + "/prices"; }
  std::filesystem::path hook() const { return folder_.path() / "hook"; }

  std::vector<std::string> pools() const; ///< names

  void be(hook_conduct x);
  void be(feed_conduct x);

  std::vector<std::string> running(const std::string& pool) const; ///< names, 20 ms old at most
  std::size_t most(const std::string& pool) const;                 ///< that ran at once
  std::size_t started(const std::string& pool) const;              ///< ever
  std::size_t taken(const std::string& pool) const;                ///< by the trace
  /// From when an instance is there until it is gone; by name.
  std::map<std::string, double> bills_usd(const std::string& pool) const;
  double billed_usd(const std::string& pool) const; ///< the sum
  std::vector<std::string> requests() const;        ///< that the hook got

private:
  using clock = std::chrono::steady_clock;

  struct instance {
    std::string pool;
    pid_t pid = 0;
    clock::time_point began;
    bool is_told = false; ///< that it is taken
  };

  struct pool_account {
    std::size_t most = 0, started = 0, taken = 0;
    std::map<std::string, double> hours; ///< of instances that are gone, by name
  };

  void write_hook() const;
  web_double::response answer();
  void watch(const std::stop_token& stop);
  std::chrono::milliseconds time(clock::time_point now) const; ///< the trace's
  void look(clock::time_point now);
  void take(const pool_trace& pool, unsigned available);
  std::map<std::string, instance> found(clock::time_point now) const;
  const pool_trace& trace_of(const std::string& pool) const;

  const market_double_options options_;
  const clock::time_point began_ = clock::now();
  scratch_folder folder_{"parcae-market-double"};
  mutable std::mutex mutex_;
  std::condition_variable changed_;              ///< the feed's conduct
  feed_conduct feed_ = feed_conduct::good;       ///< under the mutex
  bool over_ = false;                            ///< under the mutex
  std::map<std::string, instance> instances_;    ///< by name; under the mutex
  std::map<std::string, pool_account> accounts_; ///< under the mutex
  web_double server_{[this](const web_double::request&) { return answer(); }};
  std::jthread watch_; ///< the last: ends before what it uses goes
};

} // namespace parcae
