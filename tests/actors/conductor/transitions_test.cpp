// The table that the conductor runs: each of its rows is taken, from each of its phases, and leads where it says.

#include "tests/actors/conductor/transition_scenes.hpp"
#include "tests/support/table_checks.hpp"

namespace parcae {
namespace {

using enum phase;

TEST(transitions, each_row_is_taken_from_each_of_its_phases) {
  const auto rows = conductor::transitions();
  scene_list scenes;
  add_phase_scenes(scenes);
  add_answer_scenes(scenes);
  const auto& all = scenes.all;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (auto from = recovering; from != ended; from = static_cast<phase>(static_cast<int>(from) + 1)) {
      if (!rows[i].from.contains(from))
        continue;
      SCOPED_TRACE(to_string(from) + ", " + to_string(rows[i].on) + ", " + rows[i].condition);
      const auto found = std::ranges::find_if(all, [&](const scene& x) {
        return x.from == from && x.on == rows[i].on && x.condition == rows[i].condition;
      });
      if (found == all.end()) {
        ADD_FAILURE() << "no scene";
        continue;
      }
      conductor_options options;
      if (from == warming || rows[i].to == warming)
        options.feed_from = 0ms;
      stage_set s(found->steps, found->checkpoint_every, {}, options, found->serves);
      if (found->bring) {
        s.bring_to(from);
        EXPECT_EQ(s.d.view().now, from);
        s.d.taken.clear();
      }
      found->play(s);
      const auto taken = std::ranges::find(s.d.taken, std::pair(i, from));
      if (taken == s.d.taken.end()) {
        ADD_FAILURE() << "not taken; now " << to_string(s.d.view().now) << ", " << s.d.view().problem;
        continue;
      }
      // Where it leads shows in the next one taken, or in the end.
      const auto next = taken + 1 == s.d.taken.end() ? s.d.view().now : (taken + 1)->second;
      EXPECT_EQ(next, rows[i].to.value_or(from));
      EXPECT_THAT(s.d.errors(), ::testing::IsEmpty());
    }
}

TEST(transitions, no_row_is_hidden_by_one_before) {
  expect_no_row_hidden(conductor::transitions());
}

TEST(transitions, are_in_the_readme) {
  expect_in_file(table_of(conductor::transitions()), "actors/conductor/README.md");
}

} // namespace
} // namespace parcae
