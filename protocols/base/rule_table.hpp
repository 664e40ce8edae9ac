#pragma once

// The table that a state machine runs, and as its README prints it.

#include "protocols/base/enum_set.hpp"

#include <cstddef>
#include <functional>
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

/// A row as a machine runs it.
template <class Phase, class Trigger, class Condition, class Action>
struct machine_row {
  enum_set<Phase> from;
  Trigger on;
  const char* condition; ///< for people; empty: always
  Condition holds;       ///< of the machine and what happens; null: always
  const char* does;      ///< for people
  Action act;            ///< likewise, before the next phase begins; may be null
  std::optional<Phase> to;
};

template <class Phase, class Trigger, class Condition, class Action>
std::vector<table_row<Phase, Trigger>>
rules_of(const std::vector<machine_row<Phase, Trigger, Condition, Action>>& rows) {
  std::vector<table_row<Phase, Trigger>> result;
  for (const auto& x : rows)
    result.push_back({x.from, x.on, x.condition, x.does, x.to});
  return result;
}

/// Does what the row for it says, of which `observe` (may be empty) is told before: its number, the phase. The next
/// phase is left to who calls. Null: there is no row for it.
template <class Machine, class Row, class Phase, class Trigger, class Happening, class Observer>
const Row* run_row(Machine& machine, const std::vector<Row>& rows, Phase phase, Trigger on, const Happening& x,
                   const Observer& observe) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    if (row.on != on || !row.from.contains(phase) ||
        (row.holds && !std::invoke(row.holds, static_cast<const Machine&>(machine), x)))
      continue;
    if (observe)
      observe(i, phase);
    if (row.act)
      std::invoke(row.act, machine, x);
    return &row;
  }
  return nullptr;
}

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
