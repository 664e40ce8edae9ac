#pragma once

// Traces of availability: which nodes were there when. Two formats, told apart by the first line's number of fields:
//   events  "milliseconds,add|remove,node[,notice_ms]", sorted by time
//   counts  "seconds,count", sorted by time
// Empty lines and lines that start with '#' are skipped. Anything else is a parse_error that names the line.

#include "forecast/history.hpp"
#include "planner/cost/profile.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace parcae {

struct trace_event {
  std::uint64_t ms = 0;
  bool added = false; ///< else removed
  std::string node;
  std::uint64_t notice_ms = 0; ///< how long before its removal the node was told; 0: not, and for additions
};

/// Whether the text is of counts; of events otherwise, also if it is empty.
bool is_counts(std::string_view text);

/// An empty text gives an empty trace. Removal of a node that is not there, a second addition, notice of an addition,
/// and times that go back are errors.
std::vector<trace_event> parse_events(std::string_view text);

/// Reads either format. Rows are those of the published evaluation: one for each second with events, and between two of
/// them further ones every 60 s after the first as long as they are before the next. Every row counts as an interval. A
/// node that leaves in the second in which it came was never there.
fleet_history parse_trace(std::string_view text);

fleet_history intervals_of(const std::vector<trace_event>& events);

/// The same rows, continued until `last_s` by rows without events. Without rows: begins with an empty fleet at
/// `first_s`.
fleet_history lasting(fleet_history rows, double first_s, double last_s);

/// The same trace with each addition later by the time a node takes to start; nodes removed before that are left out.
std::vector<trace_event> delayed_additions(const std::vector<trace_event>& events, std::uint64_t delay_ms);

/// The same trace with each removal at its notice, since training leaves a node then; nodes that get notice before they
/// are added are left out. Notice of less than `least_ms` is none.
std::vector<trace_event> removals_when_told(const std::vector<trace_event>& events, std::uint64_t least_ms);

/// 0 if nobody is told before.
std::uint64_t longest_notice_ms(const std::vector<trace_event>& events);

/// The intervals as training lives through them in real time, which last as long as `history` does: nodes can work
/// `start_ms` after they were added, and are left when they are told to go if that is at least `least_notice_ms` before
/// (else no notice counts).
fleet_history lived_intervals(std::vector<trace_event> events, const fleet_history& history,
                              std::optional<std::uint64_t> start_ms, std::optional<double> least_notice_ms);

/// The same as parse_trace reads it.
std::string to_csv(const std::vector<trace_event>& events);

} // namespace parcae
