#include "actors/manager/trace_collection.hpp"

#include <algorithm>
#include <utility>

namespace parcae {

namespace {

// A span takes 24 bytes there, a trace less than 100 beside its spans.
constexpr std::size_t spans_of_reply = 20'000, traces_of_reply = 1'000;
constexpr std::uint64_t max_ns = std::uint64_t{1} << 60; // 36 years: what readers add to it stays a number

bool is_sound(const step_trace& x) {
  return x.spans.size() <= step_trace::max_spans && std::ranges::all_of(x.spans, [](const auto& span) {
           return span.part <= step_part::core && span.from_ns < max_ns && span.ns < max_ns;
         });
}

} // namespace

void trace_collection::begin(job_id job, generation of, const placement& grid, std::uint32_t steps) {
  const auto number = all_.number + 1;
  all_ = {};
  all_.number = number;
  all_.job = job.value;
  all_.generation = of.value;
  all_.steps = std::min(steps, trace_steps::most);
  all_.depth = grid.depth;
  ranks_.assign(grid.participants.begin(), grid.participants.begin() + grid.ranks());
  for (const auto& x : ranks_)
    all_.slots.push_back(to_string(x.slot));
  heard_.assign(ranks_.size(), 0);
  spans_ = 0;
}

void trace_collection::hear(const slot_id& from, traced x) {
  const auto rank = static_cast<std::size_t>(std::ranges::find(ranks_, from, &participant::slot) - ranks_.begin());
  if (x.current.value != all_.generation || rank == ranks_.size() || heard_[rank] == all_.steps || !is_sound(x.what))
    return;
  ++heard_[rank];
  if (spans_ + x.what.spans.size() > max_spans) {
    x.what.spans.clear();
    x.what.is_cut = true;
  }
  spans_ += x.what.spans.size();
  all_.traces.push_back({std::move(x.what), static_cast<std::uint32_t>(rank)});
}

trace_reply trace_collection::part(std::uint64_t from, generation current) const {
  trace_reply result{.job = all_.job,
                     .generation = all_.generation,
                     .steps = all_.steps,
                     .depth = all_.depth,
                     .slots = all_.slots,
                     .is_over = current.value != all_.generation ||
                                std::ranges::all_of(heard_, [&](auto n) { return n == all_.steps; }),
                     .number = all_.number,
                     .first = std::min<std::uint64_t>(from, all_.traces.size()),
                     .count = all_.traces.size(),
                     .traces = {}};
  std::size_t spans = 0;
  for (auto i = result.first; i < all_.traces.size(); ++i) {
    const auto& x = all_.traces[i];
    spans += x.spans.size();
    if (spans > spans_of_reply || result.traces.size() == traces_of_reply)
      break;
    result.traces.push_back(x);
  }
  return result;
}

} // namespace parcae
