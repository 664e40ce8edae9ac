#pragma once

// A market for live runs: spot at a dollar a second, on demand at three, two instances of each at most; perhaps another
// place with spot at half a dollar. Time stands still in it until a test moves it on.

#include "tests/support/files.hpp"
#include "tests/support/market_double.hpp"
#include "tests/support/names.hpp"

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

namespace parcae {

class small_market {
public:
  using counts = std::vector<std::pair<std::chrono::milliseconds, unsigned>>; ///< from when on how many

  /// `file`: where its market file is put. `far`: of the other place, if there is one.
  small_market(const std::filesystem::path& file, counts spot, const counts& far = {}) :
      seen(market_double_options{pools_of(std::move(spot), far),
                                 sibling_program("parcae-node").string() + " --cloud none --own-machine",
                                 [this] { return std::chrono::milliseconds(time); }}),
      file_(file) {
    write_file(file, "feed = \"" + seen.feed() +
                         "\"\n[[pool]]\nname = \"spot\"\nplace = \"here\"\nkind = \"k\"\nspot = true\nprice = 3600\n"
                         "most = 2\nstart = \"2s\"\n[[pool]]\nname = \"sure\"\nplace = \"here\"\nkind = \"k\"\n"
                         "price = 10800\nmost = 2\nstart = \"2s\"\n" +
                         (far.empty() ? ""
                                      : "[[pool]]\nname = \"far\"\nplace = \"there\"\nkind = \"k\"\nspot = true\n"
                                        "price = 1800\nmost = 2\nstart = \"2s\"\n[[path]]\nfrom = \"here\"\n"
                                        "to = \"there\"\nper_gb = 999\n"));
  }

  /// Of a manager that rents of it.
  std::vector<std::string> manager_arguments() const {
    return {"--market", file_.string(), "--provision", seen.hook().string(), "--market-interval", "500ms"};
  }

  /// Names of all that run.
  std::vector<std::string> running() const {
    std::vector<std::string> result;
    for (const auto& pool : seen.pools())
      for (auto& x : seen.running(pool))
        result.push_back(std::move(x));
    return result;
  }

  std::atomic<int> time = 0; ///< its milliseconds
  market_double seen;

private:
  static std::vector<pool_trace> pools_of(counts spot, const counts& far) {
    std::vector<pool_trace> result{{"spot", 3'600, std::move(spot)}, {"sure", 10'800, {{0ms, 2}}}};
    if (!far.empty())
      result.push_back({"far", 1'800, far});
    return result;
  }

  const std::filesystem::path file_;
};

} // namespace parcae
