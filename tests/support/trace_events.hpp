#pragma once

// What the Trace Event format asks of a file, and what such a file has.

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// In whole nanoseconds.
struct trace_events {
  struct slice {
    std::string name;
    std::int64_t from, to;
  };
  using row = std::pair<std::int64_t, std::int64_t>; ///< process, thread

  std::map<row, std::string> names; ///< of threads
  std::map<row, std::vector<slice>> slices;
  std::map<std::string, int> flows; ///< by name, complete ones

  double ms_of(const row& where, const std::string& name) const {
    double result = 0;
    for (const auto& x : slices.at(where))
      if (x.name == name)
        result += static_cast<double>(x.to - x.from) / 1e6;
    return result;
  }
};

/// Expects that it keeps the rules: events have what their phase needs, in the order of time; those of a thread are
/// within one another or apart; each flow begins and ends once, in this order, within events; what there is has names.
inline trace_events checked_trace_events(const std::string& text) {
  namespace json = boost::json;
  trace_events result;
  struct point {
    trace_events::row where;
    std::string name;
    std::int64_t at;
  };
  std::map<std::string, point> begun, ended;
  std::set<std::int64_t> processes, named;
  const auto whole = [](const json::value& x) { return std::llround(x.to_number<double>() * 1e3); };
  std::int64_t last = 0;
  const auto file = json::parse(text);
  for (const auto& value : file.at("traceEvents").as_array()) {
    const auto& x = value.as_object();
    const std::string phase(x.at("ph").as_string()), name(x.at("name").as_string());
    const trace_events::row where{x.at("pid").to_number<std::int64_t>(), x.at("tid").to_number<std::int64_t>()};
    EXPECT_FALSE(name.empty());
    if (phase == "M") {
      const std::string called(x.at("args").at("name").as_string());
      if (name == "process_name")
        named.insert(where.first);
      else
        result.names[where] = called;
      continue;
    }
    processes.insert(where.first);
    const auto at = whole(x.at("ts"));
    EXPECT_GE(at, last) << "not in the order of time: " << name;
    last = at;
    if (phase == "X") {
      const auto length = whole(x.at("dur"));
      EXPECT_GE(length, 0);
      result.slices[where].push_back({name, at, at + length});
    } else if (phase == "s" || phase == "f") {
      auto& points = phase == "s" ? begun : ended;
      EXPECT_TRUE(points.emplace(std::string(x.at("id").as_string()), point{where, name, at}).second) << "twice";
      EXPECT_TRUE(phase == "s" || x.at("bp").as_string() == "e");
    } else {
      ADD_FAILURE() << "phase " << phase;
    }
  }
  EXPECT_EQ(processes, named);
  for (const auto& [where, all] : result.slices) {
    EXPECT_TRUE(result.names.contains(where));
    std::vector<std::int64_t> open; // ends of those around
    for (const auto& x : all) {
      while (!open.empty() && open.back() <= x.from)
        open.pop_back();
      EXPECT_TRUE(open.empty() || x.to <= open.back()) << x.name << " is half within another";
      open.push_back(x.to);
    }
  }
  const auto is_within = [&](const point& p) {
    for (const auto& x : result.slices[p.where])
      if (x.from <= p.at && p.at < x.to)
        return true;
    return false;
  };
  EXPECT_EQ(begun.size(), ended.size());
  for (const auto& [id, from] : begun) {
    const auto to = ended.find(id);
    if (to == ended.end()) {
      ADD_FAILURE() << "flow " << id << " does not end";
      continue;
    }
    EXPECT_EQ(from.name, to->second.name);
    EXPECT_LE(from.at, to->second.at);
    EXPECT_NE(from.where, to->second.where);
    EXPECT_TRUE(is_within(from) && is_within(to->second));
    ++result.flows[from.name];
  }
  return result;
}

} // namespace parcae
