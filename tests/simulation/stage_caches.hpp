#pragma once

// What a stage of a served model keeps in a simulation: how many positions of each request, by layer.

#include "gpu/dataplane/pass_frames.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace parcae::simulation {

class stage_caches {
public:
  using content = std::map<std::uint32_t, std::map<std::uint64_t, std::uint32_t>>; ///< by layer, request

  /// What is kept of other layers than [first, last) goes.
  void compute(std::uint32_t first, std::uint32_t last) {
    first_ = first;
    last_ = last;
    std::erase_if(all_, [&](const auto& x) { return x.first < first || x.first >= last; });
  }

  /// It does not have it any more.
  content take(std::uint32_t first, std::uint32_t last) {
    content result;
    for (auto layer = first; layer < last; ++layer)
      if (auto x = all_.extract(layer))
        result.insert(std::move(x));
    return result;
  }

  void add(const content& x) {
    for (const auto& [layer, requests] : x)
      for (const auto& [request, positions] : requests)
        if (layer >= first_ && layer < last_)
          all_[layer][request] = std::max(all_[layer][request], positions);
  }

  std::uint32_t held(std::uint64_t request) const {
    auto result = UINT32_MAX;
    for (auto layer = first_; layer < last_; ++layer) {
      const auto x = all_.find(layer);
      result = std::min(result, x == all_.end() || !x->second.contains(request) ? 0 : x->second.at(request));
    }
    return result;
  }

  /// As a stage does it; of what is asked the frame has the answer then. What is wrong; empty: nothing.
  std::string take_pass(pass_frame& x) {
    for (const auto request : x.over)
      for (auto& [layer, requests] : all_)
        requests.erase(request);
    std::string wrong;
    for (auto& row : x.rows) {
      if (x.kind == pass_frame_kind::held)
        row.position = lies ? row.position : std::min(row.position, held(row.request));
      else if (row.position > held(row.request))
        wrong = "is to compute position " + std::to_string(row.position) + " of request " +
                std::to_string(row.request) + ", of which it holds " + std::to_string(held(row.request));
      else
        for (auto layer = first_; layer < last_; ++layer)
          all_[layer][row.request] = std::max(all_[layer][row.request], row.position + 1);
    }
    return wrong;
  }

  bool lies = false; ///< a fault: it says that it holds whatever it is asked for

private:
  std::uint32_t first_ = 0, last_ = 0;
  content all_;
};

} // namespace parcae::simulation
