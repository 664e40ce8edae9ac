#pragma once

// Turns what is heard of a fleet as it happens (joins, notices, losses) into the intervals that the forecast methods
// learn from: every interval without news makes a row, and so does every moment with news. Deterministic,
// single-threaded, no clock: times are arguments.

#include "forecast/method.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

namespace parcae {

struct fleet_event {
  double seconds = 0;      ///< when; of any clock that does not go back
  std::string instance;    ///< names one life of an instance
  std::uint32_t slots = 1; ///< devices it has, at least 1
  bool joined = false;     ///< else it is lost, or under notice: no use is to be expected of it
  bool announced = false;  ///< of a loss: there was a notice
};

/// A forecast in units of `devices` slots that come and go together.
struct fleet_forecast {
  availability_lattice future;
  std::uint32_t devices = 1;
  bool announced = false; ///< at least half of the losses so far came with a notice
};

class fleet_recorder {
public:
  static constexpr std::size_t max_events = 10'000;    ///< kept; older ones go
  static constexpr std::size_t max_quiet_rows = 1'440; ///< made of one pause; a longer one counts as this many

  /// `method` is one of method_names(), intervals are longer than 0.
  fleet_recorder(std::string method, double interval_s);

  /// Times that go back count as the newest one. A second join and a second loss of the same instance, and the loss of
  /// an unknown one, are ignored. Where instances have different numbers of slots, their greatest common divisor is the
  /// unit.
  void note(const fleet_event& x);

  /// Everything noted, and the quiet since then, is observed first.
  fleet_forecast forecast(double now_s, std::size_t look_ahead);

  /// Rows observed so far.
  std::uint32_t rows() const { return rows_; }

private:
  void restart();
  void take(const fleet_event& x);
  /// Observes the row that is open and the quiet rows before `until_s`.
  void close(double until_s);

  const std::string method_name_;
  const double interval_s_;
  std::deque<fleet_event> events_; ///< oldest first
  std::uint32_t devices_ = 0;      ///< 0: nothing joined yet
  std::unique_ptr<forecast_method> method_;
  fleet_interval open_; ///< not yet observed, while is_open_
  bool is_open_ = false;
  double last_s_ = 0; ///< start of the newest row
  std::uint32_t rows_ = 0;
  std::uint32_t available_ = 0;                    ///< units
  std::map<std::string, std::uint32_t> joined_in_; ///< row, of those who are there
  std::uint32_t losses_ = 0;
  std::uint32_t announced_ = 0;
};

} // namespace parcae
