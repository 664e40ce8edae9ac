#pragma once

// The table that a state machine runs, as its README prints it.

#include "protocols/base/enum_set.hpp"

#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// For a trigger the first row counts that names the present phase and whose condition holds.
template <class Phase, class Trigger>
struct table_row {
  enum_set<Phase> from;
  Trigger on;
  std::string condition;   ///< empty: always
  std::string does;        ///< before the next phase begins
  std::optional<Phase> to; ///< none: the phase stays
};

/// "queued, running", in the order of the enumeration.
template <class Phase>
std::string names_of(const enum_set<Phase>& all) {
  std::string result;
  for (unsigned i = 0; i < 32; ++i)
    if (const auto x = static_cast<Phase>(i); all.contains(x))
      result += (result.empty() ? "" : ", ") + to_string(x);
  return result;
}

/// For people, in Markdown. Phases and triggers have a to_string; a phase may have a names_of of its own.
template <class Phase, class Trigger>
std::string table_of(const std::vector<table_row<Phase, Trigger>>& rows) {
  std::string result = "| in | when | if | does | then |\n|---|---|---|---|---|\n";
  for (const auto& x : rows)
    result += "| " + names_of(x.from) + " | " + to_string(x.on) + " | " + x.condition + " | " + x.does + " | " +
              (x.to ? to_string(*x.to) : "stays") + " |\n";
  return result;
}

} // namespace parcae
