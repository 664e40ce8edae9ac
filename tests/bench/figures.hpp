#pragma once

// What a bench measured and what it must hold: one JSON object per figure on stdout, which ./deploy/bench makes a table
// of. Names and bounds must need no escapes.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace parcae {

/// Not thread-safe. A value that is not finite holds no bound.
class figures {
public:
  void at_most(const std::string& figure, double value, double bound) {
    print(figure, value, "at most " + text(bound), value <= bound);
  }

  void at_least(const std::string& figure, double value, double bound) {
    print(figure, value, "at least " + text(bound), value >= bound && std::isfinite(value));
  }

  void between(const std::string& figure, double value, double low, double high) {
    print(figure, value, text(low) + " to " + text(high), low <= value && value <= high);
  }

  /// Nothing is asked of it.
  void only_shown(const std::string& figure, double value) { print(figure, value, {}, true); }

  /// For the log alone: run_benches makes no row of it.
  void note(const std::string& what, double value) {
    std::printf("{\"note\": \"%s\", \"value\": %s}\n", what.c_str(), finite(value).c_str());
  }

  /// What main returns.
  int status() const { return all_met_ ? EXIT_SUCCESS : EXIT_FAILURE; }

private:
  static std::string text(double x) {
    char result[32];
    std::snprintf(result, sizeof result, "%.4g", x);
    return result;
  }

  static std::string finite(double x) { return std::isfinite(x) ? text(x) : "null"; }

  void print(const std::string& figure, double value, const std::string& bound, bool met) {
    all_met_ = all_met_ && met;
    std::printf("{\"figure\": \"%s\", \"value\": %s, \"bound\": \"%s\", \"met\": %s}\n", figure.c_str(),
                finite(value).c_str(), bound.c_str(), met ? "true" : "false");
    std::fflush(stdout);
  }

  bool all_met_ = true;
};

} // namespace parcae
