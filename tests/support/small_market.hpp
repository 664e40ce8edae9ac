#pragma once

// A market of one place for live runs: spot at a dollar a second, on demand at three, two instances of each at most.
// Time stands still in it until a test moves it on.

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

  /// `file`: where its market file is put.
  small_market(const std::filesystem::path& file, counts spot) :
      seen(market_double_options{{{"spot", 3'600, std::move(spot)}, {"sure", 10'800, {{0ms, 2}}}},
                                 sibling_program("parcae-node").string() + " --cloud none --own-machine",
                                 [this] { return std::chrono::milliseconds(time); }}),
      file_(file) {
    write_file(file, "feed = \"" + seen.feed() +
                         "\"\n[[pool]]\nname = \"spot\"\nplace = \"here\"\nkind = \"k\"\nspot = true\nprice = 3600\n"
                         "most = 2\nstart = \"2s\"\n[[pool]]\nname = \"sure\"\nplace = \"here\"\nkind = \"k\"\n"
                         "price = 10800\nmost = 2\nstart = \"2s\"\n");
  }

  /// Of a manager that rents of it.
  std::vector<std::string> manager_arguments() const {
    return {"--market", file_.string(), "--provision", seen.hook().string(), "--market-interval", "500ms"};
  }

  /// Names of all that run.
  std::vector<std::string> running() const {
    auto result = seen.running("spot");
    for (auto& x : seen.running("sure"))
      result.push_back(std::move(x));
    return result;
  }

  std::size_t started() const { return seen.started("spot") + seen.started("sure"); }

  std::atomic<int> time = 0; ///< its milliseconds
  market_double seen;

private:
  const std::filesystem::path file_;
};

} // namespace parcae
