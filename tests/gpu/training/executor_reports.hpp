#pragma once

#include "protocols/choreography/choreography.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

namespace parcae::rig {

/// What an executor reports, in order.
struct executor_reports {
  void operator()(report x) {
    std::lock_guard lock(mutex);
    queue.push_back(std::move(x));
    changed.notify_all();
  }

  /// The next one of this kind; those of other kinds that came before are dropped.
  template <class Kind>
  Kind next() {
    std::unique_lock lock(mutex);
    std::optional<Kind> found;
    auto come = changed.wait_for(lock, patience, [&] {
      while (!queue.empty() && !found) {
        if (auto x = std::get_if<Kind>(&queue.front()))
          found = std::move(*x);
        queue.pop_front();
      }
      return found.has_value();
    });
    if (!come)
      throw std::runtime_error("no such report came");
    return std::move(*found);
  }

  /// The next one but progress.
  report next_word() {
    std::unique_lock lock(mutex);
    auto come = changed.wait_for(lock, patience, [&] {
      while (!queue.empty() && std::holds_alternative<progress>(queue.front()))
        queue.pop_front();
      return !queue.empty();
    });
    if (!come)
      throw std::runtime_error("no report came");
    auto x = std::move(queue.front());
    queue.pop_front();
    return x;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<report> queue;
};

} // namespace parcae::rig
