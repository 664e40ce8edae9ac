#include "runtime/process/whole_trace.hpp"

#include <algorithm>
#include <iterator>
#include <thread>

namespace parcae {

namespace {

/// It is over when no rank has said anything for this long.
constexpr std::chrono::minutes silence_limit{2};

} // namespace

trace_reply whole_trace(manager_client& client, std::uint64_t job, std::uint32_t steps) {
  const auto name = std::to_string(job);
  auto all = client.trace({job, steps, 0});
  if (all.slots.empty())
    throw client_error("job " + name + " does not train just now, so there are no steps to trace");
  auto heard = std::chrono::steady_clock::now();
  while (!all.is_over || all.traces.size() < all.count) {
    if (std::chrono::steady_clock::now() - heard > silence_limit)
      break;
    if (all.traces.size() >= all.count)
      std::this_thread::sleep_for(ask_interval);
    auto more = client.trace({job, 0, all.traces.size()});
    if (more.number != all.number || more.generation != all.generation)
      throw client_error("another trace of job " + name + " was asked for, which took this one's place; ask again");
    all.is_over = more.is_over;
    all.count = more.count;
    if (!more.traces.empty())
      heard = std::chrono::steady_clock::now();
    std::ranges::move(more.traces, std::back_inserter(all.traces));
  }
  if (all.traces.empty())
    throw client_error("no slot of job " + name + " told of a step; `parcae status " + name +
                       "` says whether it trains");
  return all;
}

} // namespace parcae
