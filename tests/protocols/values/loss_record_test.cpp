// The record of losses: what it knows after steps came, were computed again, or are missing; and its bytes.

#include "protocols/values/loss_record.hpp"
#include "tests/support/names.hpp"

#include <bit>
#include <limits>

using namespace parcae;

namespace {

constexpr auto no_number = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinite = std::numeric_limits<double>::infinity();

step_record record_of(std::uint64_t step) {
  step_record x{1.0 / static_cast<double>(step + 1), 0.1 * static_cast<double>(step), 1e-3, {}, 0};
  x.at_ms = 1'700'000'000'000 + static_cast<std::int64_t>(step) * 7;
  return x;
}

loss_block block_of(std::uint64_t first, std::uint64_t count) {
  loss_block x{first, 32, {}};
  for (auto step = first; step < first + count; ++step)
    x.all.push_back(record_of(step));
  return x;
}

void expect_same(const loss_block& a, const loss_block& b) {
  EXPECT_EQ(a.first, b.first);
  EXPECT_EQ(a.samples, b.samples);
  ASSERT_EQ(a.all.size(), b.all.size());
  for (std::size_t i = 0; i < a.all.size(); ++i)
    EXPECT_TRUE(a.all[i].same(b.all[i])) << i;
}

} // namespace

// given: blocks of any size, with values that are no numbers, unknown steps, evaluations / expected: the same again, in
// no more than 40 bytes a step
TEST(loss_block, comes_back_in_every_bit) {
  auto x = block_of(4096, 4096);
  x.all[0].loss = no_number;
  x.all[1].loss = -infinite;
  x.all[2].gradient_norm = std::bit_cast<double>(std::uint64_t{0xfff8'dead'beef'0001});
  x.all[3] = {};
  x.all[4].validation_loss = no_number;
  x.all[5].validation_loss = 0.25;
  const auto bytes = encode(x);
  EXPECT_LE(bytes.size(), 40 * x.all.size());
  EXPECT_LE(bytes.size(), loss_block_limit_bytes);
  expect_same(decode_loss_block(bytes), x);
  expect_same(decode_loss_block(encode(loss_block{7, 0, {}})), {7, 0, {}});
  expect_same(decode_loss_block(encode(block_of(5, 1))), block_of(5, 1));
}

// given: a block with any one bit changed, or any part of its end missing / expected: refused
TEST(loss_block, that_is_damaged_is_refused) {
  const auto good = encode(block_of(0, 20));
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    EXPECT_THROW(decode_loss_block(bad), std::runtime_error) << "byte " << i;
    EXPECT_THROW(decode_loss_block(std::span(good).first(i)), std::runtime_error) << "first " << i;
  }
  EXPECT_THROW(decode_loss_block(std::vector<char>(loss_block_limit_bytes + 36)), std::runtime_error);
  EXPECT_THROW(decode_loss_block(encode(loss_block{UINT64_MAX - 5, 0, {}})), std::runtime_error);
}

TEST(loss_block, has_a_name) {
  for (const auto first : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{1} << 62})
    EXPECT_EQ(loss_block_in(name_of_loss_block(first)), first);
  EXPECT_LT(name_of_loss_block(4096), name_of_loss_block(40960));
  for (const auto* other : {"", "4096", "0000000000004096x", "-000000000004096", "00000000000004096", "450@7"})
    EXPECT_FALSE(loss_block_in(other)) << other;
}

// given: steps that come in blocks that overlap, from several who tell / expected: each is there once
TEST(loss_record, takes_each_step_once) {
  loss_record x;
  EXPECT_FALSE(x.put(block_of(0, 3000)));
  EXPECT_FALSE(x.put(block_of(2000, 4000)));
  EXPECT_FALSE(x.put(block_of(0, 100)));
  ASSERT_EQ(x.steps(), 6000u);
  for (std::uint64_t step = 0; step < 6000; ++step)
    EXPECT_TRUE(x.find(step)->same(record_of(step))) << step;
  EXPECT_EQ(x.find(6000), nullptr);
  expect_same(x.part(4000, 4100), [] {
    auto result = block_of(4000, 100);
    result.samples = 0;
    return result;
  }());
  EXPECT_EQ(x.part(1000).all.size(), loss_block_steps);
  EXPECT_TRUE(x.part(7000).all.empty());
  x.put(block_of(6000, 10), 6004);
  EXPECT_EQ(x.steps(), 6004u);
}

// given: steps that are computed again, one of them to other bits / expected: the new one counts, and it is said
TEST(loss_record, says_which_step_came_to_something_else) {
  loss_record x;
  x.put(block_of(0, 5000));
  x.go_back(4000);
  EXPECT_EQ(x.steps(), 4000u);
  EXPECT_EQ(x.find(4000), nullptr);
  auto again = block_of(4000, 1000);
  again.all[500].at_ms += 1000;
  EXPECT_FALSE(x.put(again));
  EXPECT_TRUE(x.find(4500)->same(record_of(4500))) << "the time at which it was computed first";
  x.go_back(4000);
  again.all[7].loss += 1;
  EXPECT_EQ(x.put(again), 4007u);
  EXPECT_TRUE(x.find(4007)->same(again.all[7]));
  again.all[8].gradient_norm = 5;
  EXPECT_EQ(x.put(again), 4008u) << "said by another of the same step";
}

// given: evaluations, also of steps that are not known / expected: kept with the step, as a change
TEST(loss_record, keeps_evaluations) {
  loss_record x;
  x.put(block_of(0, 10));
  x.evaluate(4, 0.5);
  x.evaluate(10, 0.5);
  EXPECT_EQ(x.find(4)->validation_loss, 0.5);
  x.put(block_of(4, 1));
  EXPECT_EQ(x.find(4)->validation_loss, 0.5) << "said again by who did not evaluate";
}

// given: who knows of some steps, the last of which was evaluated later, or not, or is not known / expected: it is to
// hear of that again, or only of what follows
TEST(loss_record, has_news) {
  loss_record x;
  EXPECT_EQ(x.news_from(0), 0u);
  x.put(block_of(3, 7));
  EXPECT_EQ(x.news_from(0), 3u);
  EXPECT_EQ(x.news_from(5), 5u);
  x.evaluate(4, 0.5);
  EXPECT_EQ(x.news_from(5), 4u);
  EXPECT_EQ(x.news_from(6), 6u);
  x.evaluate(9, 0.5);
  EXPECT_EQ(x.news_from(10), 9u) << "nothing follows";
  EXPECT_EQ(x.news_from(11), 10u);
}

// given: changes of any kind since a copy was made / expected: the blocks to be written are named, and no others
TEST(loss_record, says_what_changed) {
  loss_record x;
  x.put(block_of(0, 4096));
  x.put(block_of(4096, 4096));
  x.put(block_of(8192, 100));
  EXPECT_THAT(x.changed_since({}), ElementsAre(0, 4096, 8192));
  auto before = x;
  EXPECT_THAT(x.changed_since(before), ElementsAre());
  x.put(block_of(0, 8292));
  EXPECT_THAT(x.changed_since(before), ElementsAre()) << "said again";
  x.put(block_of(8292, 1));
  EXPECT_THAT(x.changed_since(before), ElementsAre(8192));
  x.evaluate(17, 0.5);
  EXPECT_THAT(x.changed_since(before), ElementsAre(0, 8192));
  before = x;
  x.go_back(5000);
  EXPECT_THAT(x.changed_since(before), ElementsAre(4096));
  x.go_back(4096);
  EXPECT_THAT(x.changed_since(before), ElementsAre());
}

// given: a record of which the beginning, or a part in the middle, is not known / expected: it goes on behind
TEST(loss_record, goes_on_behind_what_is_not_known) {
  loss_record x;
  x.skip_to(9000);
  EXPECT_EQ(x.steps(), 9000u);
  EXPECT_EQ(x.first_known(), 9000u);
  x.put(block_of(9000, 10));
  EXPECT_EQ(x.first_known(), 9000u);
  EXPECT_EQ(x.first_known(9005), 9005u);
  EXPECT_EQ(x.find(8999), nullptr);
  EXPECT_FALSE(x.part(8990).all[0].is_known());
  x.put(block_of(9020, 1));
  EXPECT_EQ(x.first_known(9010), 9020u);
  x.put(block_of(0, 9020));
  EXPECT_EQ(x.first_known(), 0u);
  x.drop_before(8200);
  EXPECT_EQ(x.first_known(), 8192u);
}

// given: steps gone back behind, and later ones that come first / expected: those between are not known again
TEST(loss_record, forgets_what_it_went_back_behind) {
  loss_record x;
  x.put(block_of(0, 5'000));
  const auto before = x;
  x.go_back(4'000);
  x.put(block_of(4'200, 10));
  EXPECT_EQ(x.find(3'999)->at_ms, record_of(3'999).at_ms);
  EXPECT_EQ(x.find(4'000), nullptr);
  EXPECT_EQ(x.find(4'199), nullptr);
  EXPECT_TRUE(x.find(4'209));
  EXPECT_EQ(x.steps(), 4'210u);
  x.skip_to(4'300);
  EXPECT_EQ(x.find(4'299), nullptr);
  EXPECT_TRUE(before.find(4'100)) << "another's copy is its own";
}

// given: a step of which nobody knows when it was, beside others / expected: their times stay
TEST(loss_record, times_survive_one_that_is_not_known) {
  loss_block x{0, 8, {record_of(0), record_of(1)}};
  x.all[0].at_ms = 1;
  x.all[1].at_ms = 1'790'000'000'123;
  const auto back = decode_loss_block(encode(x));
  EXPECT_TRUE(back.all[0].is_known());
  EXPECT_EQ(back.all[1].at_ms, x.all[1].at_ms);
}

// given: what another knows of the same steps / expected: that counts, and what is new
TEST(loss_record, takes_over) {
  loss_record x;
  x.put(block_of(0, 10));
  auto other = block_of(5, 10);
  other.all[0].at_ms += 3;
  other.all[1].validation_loss = 0.5;
  other.all[2] = {};
  x.replace(other);
  EXPECT_EQ(x.steps(), 15u);
  EXPECT_TRUE(x.find(5)->same(other.all[0]));
  EXPECT_TRUE(x.find(6)->same(other.all[1]));
  EXPECT_TRUE(x.find(7)->same(record_of(7)));
}

// given: one that knows steps, but not how the version after one of them was evaluated / expected: that stays, but of
// another result
TEST(loss_record, is_replaced_but_for_evaluations) {
  loss_record x;
  x.put(block_of(0, 10));
  x.evaluate(3, 0.5);
  x.evaluate(4, 0.25);
  auto other = block_of(0, 10);
  other.all[3].at_ms += 3;
  other.all[4].loss += 1;
  x.replace(other);
  EXPECT_EQ(x.find(3)->validation_loss, 0.5);
  EXPECT_EQ(x.find(3)->at_ms, other.all[3].at_ms);
  EXPECT_FALSE(x.find(4)->validation_loss);
}

// given: a copy / expected: what becomes of the one is not seen in the other
TEST(loss_record, is_copied) {
  loss_record x;
  x.put(block_of(0, 10));
  const auto copy = x;
  x.evaluate(3, 1);
  x.put(block_of(10, 10));
  EXPECT_EQ(copy.steps(), 10u);
  EXPECT_FALSE(copy.find(3)->validation_loss);
  EXPECT_EQ(copy.part(0).all.size(), 10u);
}

// given: fewer, as many, and more steps than points, with a gap / expected: evenly, the newest among them
TEST(loss_record, is_thinned) {
  loss_record x;
  EXPECT_EQ(x.thinned(0, 5).second.all.size(), 0u);
  x.put(block_of(0, 10));
  x.skip_to(12);
  x.put(block_of(12, 11));
  const auto of = [&](std::uint64_t first, std::uint64_t points) {
    const auto [every, block] = x.thinned(first, points);
    std::vector<std::uint64_t> steps;
    for (std::size_t i = 0; i < block.all.size(); ++i)
      if (block.all[i].is_known()) {
        steps.push_back(block.first + i * every);
        EXPECT_TRUE(block.all[i].same(*x.find(steps.back())));
      }
    return steps;
  };
  EXPECT_EQ(of(0, 23).size(), 21u);
  EXPECT_THAT(of(0, 5), testing::ElementsAre(2, 7, 12, 17, 22));
  EXPECT_THAT(of(20, 2), testing::ElementsAre(20, 22));
  EXPECT_THAT(of(0, 0), testing::ElementsAre(22));
  EXPECT_THAT(of(23, 5), testing::IsEmpty());
}

// given: evaluations in several blocks, one said again, one of a step that comes to something else, one gone back
// behind / expected: those that are known, of all or evenly, the newest among them; of a copy what it had
TEST(loss_record, has_its_evaluations_thinned) {
  loss_record x;
  EXPECT_THAT(x.evaluations(0, 5), testing::IsEmpty());
  x.put(block_of(0, 3 * loss_block_steps));
  std::vector<std::pair<std::uint64_t, double>> all;
  for (std::uint64_t step = 999; step < x.steps(); step += 1000) {
    x.evaluate(step, static_cast<double>(step));
    all.emplace_back(step, static_cast<double>(step));
  }
  ASSERT_EQ(all.size(), 12u);
  x.evaluate(999, 999);
  EXPECT_EQ(x.evaluations(0, 100), all);
  EXPECT_THAT(x.evaluations(0, 5), testing::ElementsAre(all[2], all[5], all[8], all[11]));
  EXPECT_THAT(x.evaluations(2'000, 2), testing::ElementsAre(all[6], all[11]));
  EXPECT_THAT(x.evaluations(4'000, 2), testing::ElementsAre(all[7], all[11]));
  EXPECT_THAT(x.evaluations(0, 0), testing::ElementsAre(all[11]));
  EXPECT_THAT(x.evaluations(12'000, 5), testing::IsEmpty());
  const auto copy = x;
  x.go_back(11'500);
  EXPECT_THAT(x.evaluations(0, 1), testing::ElementsAre(all[10]));
  x.put(11'999, record_of(11'999)); // those between are not known
  EXPECT_THAT(x.evaluations(0, 1), testing::ElementsAre(all[11])) << "the same result: it is remembered";
  x.go_back(11'999);
  auto other = record_of(11'999);
  other.loss += 1;
  x.put(11'999, other);
  EXPECT_THAT(x.evaluations(0, 1), testing::ElementsAre(all[10])) << "another version";
  EXPECT_EQ(copy.evaluations(0, 100), all);
}
