// When requests come: files, and laws.

#include "planner/cost/profile.hpp"
#include "planner/serving/arrivals.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace parcae::serving {
namespace {

TEST(arrivals, both_kinds_of_files) {
  const auto own = parse_arrivals("# seconds, prompt, tokens\n0.5\n1,100\n\n1,,7\n2.25,3,4\n", {512, 128});
  ASSERT_EQ(own.size(), 4u);
  EXPECT_EQ(own[0].ms, 500);
  EXPECT_EQ(own[0].lengths, (request_lengths{512, 128}));
  EXPECT_EQ(own[1].lengths, (request_lengths{100, 128}));
  EXPECT_EQ(own[2].lengths, (request_lengths{512, 7}));
  EXPECT_EQ(own[3].lengths, (request_lengths{3, 4}));
  const auto theirs = parse_arrivals("0,2.9,512,0\n1,5.9,256,2966\n", {9, 128});
  ASSERT_EQ(theirs.size(), 2u);
  EXPECT_EQ(theirs[1].ms, 5900);
  EXPECT_EQ(theirs[1].lengths, (request_lengths{256, 128}));
}

std::string arrivals_error(const std::string& text) {
  try {
    parse_arrivals(text, {});
  } catch (const parse_error& e) {
    return e.what();
  }
  return "none";
}

TEST(arrivals, what_is_wrong_has_its_line) {
  EXPECT_EQ(arrivals_error(""), "has no arrivals; a line is seconds[,prompt[,tokens]]");
  EXPECT_EQ(arrivals_error("1\n\n0.5\n"), "line 3: goes back in time");
  EXPECT_EQ(arrivals_error("1\nsoon\n"), "line 2: seconds is \"soon\", must be a number from 0 to 316 M");
  EXPECT_EQ(arrivals_error("1,0\n"), "line 1: a request has at least one position of each kind");
  EXPECT_EQ(arrivals_error("1,2\n2,-2\n"), "line 2: prompt is \"-2\", must be a whole number from 0 to 1048576");
  EXPECT_EQ(arrivals_error("1,2\n2,3,4,5\n"), "line 2: has 4 fields, must be 3");
  EXPECT_EQ(arrivals_error("{\"name\": \"a profile\"}\n"),
            "line 1: seconds is \"{\"name\": \"a profile\"}\", must be a number from 0 to 316 M");
}

TEST(arrivals, laws_by_name) {
  EXPECT_FALSE(parse_arrival_law("arrivals.csv"));
  EXPECT_FALSE(parse_arrival_law("C:/arrivals.csv"));
  EXPECT_EQ(parse_arrival_law("poisson:0.35")->per_s, 0.35);
  EXPECT_EQ(parse_arrival_law("poisson:0.35")->cv, 1);
  EXPECT_EQ(parse_arrival_law("gamma:2,6")->cv, 6);
  for (const char* wrong : {"poisson:", "poisson:0", "poisson:-1", "poisson:1,2", "poisson:nan", "poisson:inf"})
    EXPECT_THROW(parse_arrival_law(wrong), parse_error) << wrong;
  for (const char* wrong : {"gamma:1", "gamma:1,", "gamma:,1", "gamma:1,0", "gamma:1,2,3", "gamma:1,1e9"})
    EXPECT_THROW(parse_arrival_law(wrong), parse_error) << wrong;
}

// given: 40,000 gaps / expected: mean and coefficient of variation, none negative; the same seed the same, another not
TEST(arrivals, gaps_have_their_moments) {
  for (const double cv : {0.046, 0.5, 1.0, 1.5, 6.0}) {
    const auto all = draw_arrivals({0.5, cv}, std::vector<request_lengths>{{1, 1}}, 40'000, 3);
    double before = 0, sum = 0, squares = 0;
    for (const auto& x : all) {
      const double gap = x.ms - before;
      ASSERT_GE(gap, 0);
      sum += gap;
      squares += gap * gap;
      before = x.ms;
    }
    const double mean = sum / 40'000, sd = std::sqrt(squares / 40'000 - mean * mean);
    EXPECT_NEAR(mean / 2000, 1, 4 * cv / 200) << cv;
    EXPECT_NEAR(sd / mean / cv, 1, 0.15) << cv;
    const auto again = draw_arrivals({0.5, cv}, std::vector<request_lengths>{{1, 1}}, 10, 3);
    const auto other = draw_arrivals({0.5, cv}, std::vector<request_lengths>{{1, 1}}, 10, 4);
    EXPECT_EQ(again.back().ms, all[9].ms);
    EXPECT_NE(other.back().ms, all[9].ms);
  }
}

TEST(arrivals, until_an_end) {
  const auto all = draw_arrivals({100, 1}, {5, 6}, 10'000, 1);
  EXPECT_NEAR(static_cast<double>(all.size()), 1000, 150);
  EXPECT_LT(all.back().ms, 10'000);
  EXPECT_EQ(all.back().lengths, (request_lengths{5, 6}));
}

} // namespace
} // namespace parcae::serving
