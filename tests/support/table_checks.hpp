#pragma once

// What must hold of the table of each machine.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

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

inline void expect_in_file(const std::string& table, const std::string& name) {
  std::ifstream file(PARCAE_SOURCE_DIR + ("/" + name));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find(table), std::string::npos) << name << " should contain:\n" << table;
}

} // namespace parcae
