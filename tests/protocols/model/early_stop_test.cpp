// When validation does not get better any more.

#include "protocols/model/early_stop.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace parcae {
namespace {

// given: losses in turn, patience and least difference / expected: the evaluation that ends the job, -1: none
TEST(early_stop, ends_after_so_many_that_are_not_better) {
  const auto end_of = [](const std::vector<double>& losses, std::uint32_t patience, double delta) {
    job_specification job;
    job.patience = patience;
    job.min_delta = delta;
    validation_course course;
    for (std::size_t i = 0; i < losses.size(); ++i)
      if (course = after(course, losses[i], job); ends(course, job))
        return static_cast<int>(i);
    return -1;
  };
  EXPECT_EQ(end_of({3, 2, 1}, 1, 0), -1);
  EXPECT_EQ(end_of({3, 3}, 1, 0), 1);
  EXPECT_EQ(end_of({3, 4, 2, 5, 5, 1}, 2, 0), 4);
  EXPECT_EQ(end_of({3, 4, 2, 5, 1.5, 5}, 2, 0), -1);
  EXPECT_EQ(end_of({3, 2.6, 2.2, 1.9, 1.5}, 2, 0.5), -1) << "compared with the best, not with the one before";
  EXPECT_EQ(end_of({3, 2.6, 2.55, 1.9, 1.5}, 2, 0.5), 2);
  EXPECT_EQ(end_of({NAN, NAN}, 2, 0), 1);
  EXPECT_EQ(end_of({NAN, 5, HUGE_VAL, 4}, 2, 0), -1);
  EXPECT_EQ(end_of({3, 3, 3, 3}, 0, 0), -1) << "no patience, no end";
}

// given: a course / expected: its bytes are two float32, best first
TEST(early_stop, the_course_is_two_numbers) {
  const auto bytes = bytes_of({1.5f, 2});
  ASSERT_EQ(bytes.size(), 8u);
  EXPECT_EQ(bytes[3], std::byte{0x3f});
  EXPECT_EQ(bytes[7], std::byte{0x40});
}

} // namespace
} // namespace parcae
