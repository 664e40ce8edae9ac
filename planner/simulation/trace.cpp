#include "planner/simulation/trace.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

namespace parcae {

namespace {

constexpr std::uint64_t interval_s = 60;
constexpr std::uint64_t longest_s = 10ull * 366 * 86'400; // ten years
constexpr std::size_t max_rows = 6'000'000;

[[noreturn]] void fail(std::size_t line, const std::string& what) {
  throw parse_error("line " + std::to_string(line) + ": " + what);
}

std::string_view trim(std::string_view x) {
  const auto first = x.find_first_not_of(" \t\r");
  if (first == std::string_view::npos)
    return {};
  return x.substr(first, x.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t begin = 0;;) {
    const auto comma = line.find(',', begin);
    fields.push_back(trim(line.substr(begin, comma - begin)));
    if (comma == std::string_view::npos || fields.size() > 4)
      return fields;
    begin = comma + 1;
  }
}

std::uint64_t number(std::string_view field, std::size_t line, const char* what, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || value > most)
    fail(line, std::string(what) + " is \"" + std::string(field.substr(0, 40)) +
                   "\", must be a whole number from 0 to " + std::to_string(most));
  return value;
}

// Calls f(line number, fields) for each line that says something.
template <class F>
void each_line(std::string_view text, F f) {
  std::size_t line = 0;
  while (!text.empty()) {
    ++line;
    const auto end = text.find('\n');
    const auto content = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (content.size() > 1000)
      fail(line, "is longer than 1000 characters");
    if (!content.empty() && content[0] != '#')
      f(line, split(content));
  }
}

// Rows without events between the last row and `next_s`.
void fill(fleet_history& rows, double next_s) {
  if (rows.empty())
    return;
  const auto last = rows.back();
  if ((next_s - last.seconds) / interval_s + static_cast<double>(rows.size()) > max_rows)
    throw parse_error("the trace has more than " + std::to_string(max_rows) + " intervals");
  for (double t = last.seconds + interval_s; t < next_s; t += interval_s)
    rows.push_back({t, 0, 0, last.available, {}});
}

} // namespace

bool is_counts(std::string_view text) {
  std::size_t fields = 0;
  while (!text.empty() && fields == 0) {
    const auto end = text.find('\n');
    const auto content = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (!content.empty() && content[0] != '#')
      fields = split(content).size();
  }
  return fields == 2;
}

std::vector<trace_event> parse_events(std::string_view text) {
  std::vector<trace_event> events;
  std::unordered_map<std::string, bool> present;
  each_line(text, [&](std::size_t line, const std::vector<std::string_view>& fields) {
    if (fields.size() != 3 && fields.size() != 4)
      fail(line, "has " + std::to_string(fields.size()) + " fields, must be milliseconds,add|remove,node[,notice_ms]");
    trace_event x;
    x.ms = number(fields[0], line, "the time", longest_s * 1000);
    if (!events.empty() && x.ms < events.back().ms)
      fail(line, "goes back in time");
    if (fields[1] != "add" && fields[1] != "remove")
      fail(line, "\"" + std::string(fields[1].substr(0, 40)) + "\" must be add or remove");
    x.added = fields[1] == "add";
    x.node = fields[2];
    if (x.node.empty())
      fail(line, "names no node");
    if (x.node.find_first_of(" \t#") != std::string::npos)
      fail(line, "names the node \"" + x.node + "\"; a name has no blanks and no #, a comment has a line of its own");
    if (fields.size() == 4)
      x.notice_ms = number(fields[3], line, "the notice", longest_s * 1000);
    if (x.added && x.notice_ms > 0)
      fail(line, "gives notice of an addition");
    auto& there = present[x.node];
    if (there == x.added)
      fail(line, x.added ? "adds " + x.node + ", which is there" : "removes " + x.node + ", which is not there");
    there = x.added;
    events.push_back(std::move(x));
  });
  return events;
}

fleet_history intervals_of(const std::vector<trace_event>& events) {
  fleet_history rows;
  std::unordered_map<std::string, std::uint32_t> joined_in;
  std::uint32_t available = 0;
  for (std::size_t i = 0; i < events.size();) {
    const auto second = events[i].ms / 1000;
    fill(rows, static_cast<double>(second));
    const auto index = static_cast<std::uint32_t>(rows.size());
    fleet_interval row;
    row.seconds = static_cast<double>(second);
    for (; i < events.size() && events[i].ms / 1000 == second; ++i) {
      if (events[i].added) {
        ++row.joined;
        ++available;
        joined_in[events[i].node] = index;
      } else if (const auto since = joined_in.at(events[i].node); since == index) {
        --row.joined; // was never there
        --available;
      } else {
        ++row.lost;
        row.announced += events[i].notice_ms > 0 ? 1 : 0;
        --available;
        row.lost_joined_in.push_back(since);
      }
    }
    row.available = available;
    rows.push_back(std::move(row));
  }
  return rows;
}

fleet_history lasting(fleet_history rows, double first_s, double last_s) {
  if (rows.empty())
    rows.push_back({first_s, 0, 0, 0, {}});
  fill(rows, last_s);
  if (rows.back().seconds < last_s)
    rows.push_back({last_s, 0, 0, rows.back().available, {}});
  return rows;
}

fleet_history parse_trace(std::string_view text) {
  if (!is_counts(text))
    return intervals_of(parse_events(text));
  fleet_history rows;
  bool first = true;
  double before_s = 0;
  each_line(text, [&](std::size_t line, const std::vector<std::string_view>& fields) {
    if (fields.size() != 2)
      fail(line, "has " + std::to_string(fields.size()) + " fields, must be seconds,count");
    const auto seconds = static_cast<double>(number(fields[0], line, "the time", longest_s));
    const auto count = static_cast<std::uint32_t>(number(fields[1], line, "the count", 1'000'000));
    if (!first && seconds <= before_s)
      fail(line, "must be later than the line before");
    before_s = seconds;
    const std::uint32_t before = rows.empty() ? 0 : rows.back().available;
    fill(rows, seconds);
    // A line that repeats the count is no event; the last one tells how long the trace goes on.
    if (first || count != before)
      rows.push_back({seconds, count > before ? count - before : 0, count < before ? before - count : 0, count, {}});
    first = false;
  });
  return rows;
}

namespace {

// Events at the times that `when` gives them. Nodes that would be removed before, or as, they come are left out.
template <class F>
std::vector<trace_event> at_other_times(const std::vector<trace_event>& events, F when) {
  std::vector<trace_event> result;
  std::unordered_map<std::string, std::size_t> added; // index of the node's addition in `result`
  for (auto x : events) {
    x.ms = when(x);
    if (x.added) {
      added[x.node] = result.size();
      result.push_back(std::move(x));
    } else if (auto& addition = result[added.at(x.node)]; addition.ms < x.ms) {
      result.push_back(std::move(x));
    } else {
      addition.node.clear();
    }
  }
  std::erase_if(result, [](const trace_event& x) { return x.node.empty(); });
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
  return result;
}

} // namespace

std::vector<trace_event> delayed_additions(const std::vector<trace_event>& events, std::uint64_t delay_ms) {
  return at_other_times(events, [&](const trace_event& x) { return x.added ? x.ms + delay_ms : x.ms; });
}

std::vector<trace_event> removals_when_told(const std::vector<trace_event>& events, std::uint64_t least_ms) {
  auto result = at_other_times(
      events, [&](const trace_event& x) { return x.notice_ms < least_ms ? x.ms : x.ms - std::min(x.notice_ms, x.ms); });
  for (auto& x : result)
    x.notice_ms = x.notice_ms < least_ms ? 0 : x.notice_ms;
  return result;
}

std::uint64_t longest_notice_ms(const std::vector<trace_event>& events) {
  std::uint64_t result = 0;
  for (const auto& x : events)
    result = std::max(result, x.notice_ms);
  return result;
}

fleet_history lived_intervals(std::vector<trace_event> events, const fleet_history& history,
                              std::optional<std::uint64_t> start_ms, std::optional<double> least_notice_ms) {
  if (start_ms)
    events = delayed_additions(events, *start_ms);
  if (least_notice_ms)
    events = removals_when_told(events, static_cast<std::uint64_t>(std::ceil(*least_notice_ms)));
  else
    std::ranges::for_each(events, [](auto& x) { x.notice_ms = 0; });
  return lasting(intervals_of(events), history.front().seconds, history.back().seconds);
}

std::string to_csv(const std::vector<trace_event>& events) {
  std::string text;
  for (const auto& x : events) {
    text += std::to_string(x.ms) + (x.added ? ",add," : ",remove,") + x.node;
    if (x.notice_ms > 0)
      text += "," + std::to_string(x.notice_ms);
    text += "\n";
  }
  return text;
}

} // namespace parcae
