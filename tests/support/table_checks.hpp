#pragma once

// What must hold of the table of each machine.

#include "tests/support/files.hpp"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace parcae {

/// By one before it, for the same trigger and without a condition.
template <class Rows>
void expect_no_row_hidden(const Rows& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (rows[j].on == rows[i].on && rows[j].condition.empty()) {
        EXPECT_EQ(rows[j].from.bits & rows[i].from.bits, 0)
            << i << ": " << to_string(rows[i].on) << ", " << rows[i].condition;
      }
}

/// Names of what a machine did, reports by theirs.
template <class Say, class Effects, class Reports, class Names>
std::vector<std::string> names_of(const Effects& all, const Reports& report_names, const Names& effect_names) {
  std::vector<std::string> result;
  for (const auto& x : all)
    if (const auto* said = std::get_if<Say>(&x))
      result.push_back(report_names[said->what.index()]);
    else
      result.push_back(effect_names[x.index()]);
  return result;
}

/// The first report of this kind among them.
template <class T, class Say, class Effects>
T report_in(const Effects& all) {
  for (const auto& x : all)
    if (const auto* y = std::get_if<Say>(&x))
      if (const auto* z = std::get_if<T>(&y->what))
        return *z;
  ADD_FAILURE() << "not said";
  return {};
}

/// Plays the scene of each row from each of its phases.
template <class Rows, class Scenes, class Phase, class Play>
void play_each_row(const Rows& rows, const Scenes& scenes, Phase first, Phase last, Play play) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (auto from = first; from <= last; from = static_cast<Phase>(static_cast<int>(from) + 1)) {
      if (!rows[i].from.contains(from))
        continue;
      SCOPED_TRACE(to_string(from) + ", " + to_string(rows[i].on) + ", " + rows[i].condition);
      const auto found = scenes.find({rows[i].on, rows[i].condition});
      if (found == scenes.end())
        ADD_FAILURE() << "no scene";
      else
        play(i, from, found->second);
    }
}

inline void expect_in_file(const std::string& table, const std::string& name) {
  const auto text = content(PARCAE_SOURCE_DIR + ("/" + name));
  EXPECT_NE(text.find(table), std::string::npos) << name << " should contain:\n" << table;
}

} // namespace parcae
