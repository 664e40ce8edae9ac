#pragma once

// What a trial of NCCL between processes on one GPU saw, and what follows from it. Pure.

#include "protocols/values/state.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// A generation that trained for a while.
struct nccl_row {
  std::string what;          ///< that led to it
  transport_state transport; ///< as status said then
  std::string more{};        ///< for people
};

struct nccl_findings {
  std::vector<nccl_row> rows{};
  std::vector<std::string> faults{}; ///< what must not be, whatever NCCL can do: a standstill, a crash
  std::string digest{};              ///< of the parameters; empty: it did not come to its end
  std::string expected{};            ///< of the undisturbed run's
};

struct nccl_verdict {
  std::string text; ///< a table, the last line of which begins with "supported", "unsupported" or "FAILED"
  int status = 0;   ///< 1: FAILED. That NCCL refuses is a result
};

inline nccl_verdict verdict_of(const nccl_findings& x) {
  std::vector<std::pair<std::string, std::string>> lines;
  const nccl_row* without = nullptr;
  for (const auto& row : x.rows) {
    const auto& by = row.transport.by;
    lines.emplace_back(row.what, (by.empty() ? "nobody says by what" : by) + (row.more.empty() ? "" : "; " + row.more));
    if (by != "nccl" && !without)
      without = &row;
  }
  const bool equal = !x.digest.empty() && x.digest == x.expected;
  lines.emplace_back("parameters", x.digest.empty() ? "none" : equal ? "the undisturbed run's" : "DIFFERENT");
  std::size_t width = 0;
  for (const auto& [what, found] : lines)
    width = std::max(width, what.size());
  nccl_verdict result;
  for (const auto& [what, found] : lines)
    result.text += what + std::string(width + 2 - what.size(), ' ') + found + "\n";
  if (!x.faults.empty() || !equal) {
    result.status = 1;
    for (const auto& fault : x.faults)
      result.text += "FAILED: " + fault + "\n";
    if (x.faults.empty())
      result.text += "FAILED: the bits are not those of the undisturbed run\n";
  } else if (without) {
    const auto& reason = without->transport.reason;
    result.text += "unsupported (" + without->what + "): " + (reason.empty() ? "no reason was given" : reason) + "\n";
  } else {
    result.text += "supported\n";
  }
  return result;
}

} // namespace parcae
