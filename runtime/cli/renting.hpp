#pragma once

// What a manager rents by: its market file, the feed of prices, the hook, and the broker between them.

#include "actors/manager/broker.hpp"
#include "runtime/market/market_file.hpp"

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace parcae {

struct renting_options {
  std::filesystem::path market;               ///< empty: the manager rents nothing
  std::string hook;                           ///< program or URL
  std::chrono::milliseconds interval{60'000}; ///< between decisions, and between readings of the feed
  std::string reached_at; ///< as rented nodes are to dial it, and those that may lead after it; empty: where it listens
};

class renting {
public:
  /// Reads the market file. Throws std::runtime_error, one line.
  explicit renting(renting_options options);
  ~renting();

  /// Throws as the constructor would.
  static void check(const renting_options& options) { const renting checked(options); }

  /// If there are several places or kinds, the names of all pools: their instances wait to be told who trains.
  std::set<std::string> pools_that_wait() const;

  /// By pool, if there are several; else empty.
  std::map<std::string, std::string> kinds() const;

  /// From now on instances are rented. `listens`: HOST:PORT. Throws std::runtime_error: the hook is
  /// no program and no URL.
  void begin(caf::actor_system& system, const std::string& listens, registry_actor registry, journal_actor journal,
             ledger_record past);

  /// Before the system's end: instances stay as they are.
  void end();

private:
  const renting_options options_;
  market_description market_;
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace parcae
