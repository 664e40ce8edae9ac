#include "runtime/view/step_trace.hpp"

#include "protocols/base/enum_text.hpp"
#include "protocols/base/median.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace parcae {

namespace {

namespace json = boost::json;
using nanoseconds = std::int64_t;

nanoseconds begin_of(const step_span& x) {
  return static_cast<nanoseconds>(x.from_ns);
}

nanoseconds end_of(const step_span& x) {
  return static_cast<nanoseconds>(x.from_ns + x.ns);
}

/// From a rank's clock to one that all have.
std::vector<nanoseconds> shifts_of(const trace_reply& x) {
  std::vector<std::map<std::uint64_t, nanoseconds>> exchanged(x.slots.size()); // by rank and step
  for (const auto& trace : x.traces)
    for (const auto& span : trace.spans)
      if (span.part == step_part::exchange && trace.rank < exchanged.size())
        exchanged[trace.rank][trace.step] = end_of(span);
  std::vector<nanoseconds> result(x.slots.size());
  for (std::size_t rank = 1; rank < result.size(); ++rank) {
    std::vector<double> differences;
    for (const auto& [step, at] : exchanged[rank])
      if (const auto there = exchanged[0].find(step); there != exchanged[0].end())
        differences.push_back(static_cast<double>(there->second - at));
    if (!differences.empty())
      result[rank] = static_cast<nanoseconds>(median(std::move(differences)));
  }
  return result;
}

/// Where a micro-batch was in a stage.
struct visit {
  nanoseconds first_begin, first_end, last_begin, last_end;
};
/// Rank, step, micro-batch.
using visits = std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>, visit>;

class writer {
public:
  explicit writer(const trace_reply& x) : x_(x), shifts_(shifts_of(x)) {
    nanoseconds first = INT64_MAX;
    for (const auto& trace : x.traces)
      if (trace.rank < shifts_.size() && !trace.spans.empty())
        first = std::min(first, begin_of(trace.spans.front()) + shifts_[trace.rank]);
    for (auto& shift : shifts_)
      shift -= first == INT64_MAX ? 0 : first;
  }

  std::string text() {
    for (const auto& trace : x_.traces)
      if (trace.rank < shifts_.size() && !trace.spans.empty())
        add(trace);
    add_flows(forward_, "activation", 1);
    add_flows(backward_, "gradient", -1);
    std::ranges::stable_sort(events_, {}, [](const event& e) { return std::pair(e.at, -e.length); });
    json::array all;
    for (std::uint32_t rank = 0; rank < x_.slots.size(); ++rank)
      name(all, rank);
    for (auto& e : events_)
      all.push_back(std::move(e.what));
    return json::serialize(json::object{{"traceEvents", std::move(all)},
                                        {"displayTimeUnit", "ms"},
                                        {"otherData", {{"job", x_.job}, {"generation", x_.generation}}}}) +
           "\n";
  }

private:
  struct event {
    nanoseconds at;
    nanoseconds length; ///< the longer one of two that begin together is around the other
    json::object what;
  };

  std::uint32_t depth() const { return std::max(1u, x_.depth); }
  std::uint32_t process_of(std::uint32_t rank) const { return rank / depth() + 1; }
  std::uint32_t thread_of(std::uint32_t rank) const { return rank % depth() + 1; }

  void name(json::array& to, std::uint32_t rank) const {
    const auto add = [&](const char* what, const std::string& text) {
      to.push_back({{"ph", "M"},
                    {"name", what},
                    {"pid", process_of(rank)},
                    {"tid", thread_of(rank)},
                    {"ts", 0},
                    {"args", {{"name", text}}}});
    };
    if (rank % depth() == 0)
      add("process_name", "pipeline " + std::to_string(rank / depth()));
    add("thread_name", "stage " + std::to_string(rank % depth()) + ": " + x_.slots[rank]);
  }

  json::object& put(const char* phase, std::string_view name, std::uint32_t rank, nanoseconds at,
                    nanoseconds length = 0) {
    events_.push_back(
        {at, length, {{"ph", phase}, {"name", name}, {"pid", process_of(rank)}, {"tid", thread_of(rank)}}});
    auto& result = events_.back().what;
    result["ts"] = static_cast<double>(at) / 1e3;
    return result;
  }

  void put_complete(std::string_view name, const char* category, std::uint32_t rank, nanoseconds from, nanoseconds to,
                    json::object arguments) {
    auto& x = put("X", name, rank, from, to - from);
    x["cat"] = category;
    x["dur"] = static_cast<double>(to - from) / 1e3;
    x["args"] = std::move(arguments);
  }

  void add(const rank_trace& trace) {
    const auto shift = shifts_[trace.rank];
    const auto whole = "step " + std::to_string(trace.step);
    put_complete(whole, "step", trace.rank, begin_of(trace.spans.front()) + shift, end_of(trace.spans.back()) + shift,
                 {{"step", trace.step}, {"is_cut", trace.is_cut}});
    for (const auto& span : trace.spans) {
      const auto from = begin_of(span) + shift, to = end_of(span) + shift;
      json::object arguments{{"step", trace.step}};
      if (span.micro_batch != step_span::no_micro_batch)
        arguments["micro_batch"] = span.micro_batch;
      put_complete(enum_name(span.part), "part", trace.rank, from, to, std::move(arguments));
      if (span.part == step_part::forward || span.part == step_part::backward) {
        auto& to_note = span.part == step_part::forward ? forward_ : backward_;
        const auto [known, is_new] =
            to_note.try_emplace({trace.rank, trace.step, span.micro_batch}, visit{from, to, from, to});
        known->second.last_begin = from;
        known->second.last_end = to;
      }
    }
  }

  /// From the last span of a micro-batch in a stage to its first one in the next, or in the one before.
  void add_flows(const visits& all, const char* name, int direction) {
    for (const auto& [where, from] : all) {
      const auto [rank, step, micro_batch] = where;
      const auto stage = static_cast<int>(rank % depth()) + direction;
      if (stage < 0 || stage >= static_cast<int>(depth()))
        continue;
      const auto peer = static_cast<std::uint32_t>(static_cast<int>(rank) + direction);
      const auto there = all.find({peer, step, micro_batch});
      // Each end is within its span.
      const auto leaves = from.last_end - 1;
      const auto arrives = there == all.end() ? leaves : std::max(leaves, there->second.first_begin);
      if (there == all.end() || arrives >= there->second.first_end)
        continue; // or the clocks differ by more than it took
      const auto id = std::to_string(++flows_);
      for (const bool begins : {true, false}) {
        auto& e = put(begins ? "s" : "f", name, begins ? rank : peer, begins ? leaves : arrives);
        e["cat"] = "transfer";
        e["id"] = id;
        if (!begins)
          e["bp"] = "e";
      }
    }
  }

  const trace_reply& x_;
  std::vector<nanoseconds> shifts_;
  std::vector<event> events_;
  visits forward_, backward_;
  std::uint64_t flows_ = 0;
};

} // namespace

std::string trace_events_of(const trace_reply& x) {
  return writer(x).text();
}

} // namespace parcae
