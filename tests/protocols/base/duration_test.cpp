// Durations as people write them, and pauses that double.

#include "protocols/base/back_off.hpp"
#include "protocols/base/duration.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace parcae {
namespace {

using namespace std::chrono_literals;

// given: failures in a row / expected: none before any, then the first pause, doubled, up to the longest
TEST(back_off, doubles) {
  constexpr back_off pauses{5ms, 18ms};
  std::vector<std::chrono::milliseconds> all;
  for (unsigned failures = 0; failures < 6; ++failures)
    all.push_back(pauses.after(failures));
  EXPECT_EQ(all, (std::vector<std::chrono::milliseconds>{0ms, 5ms, 10ms, 18ms, 18ms, 18ms}));
  for (unsigned failures = 0; failures < 5; ++failures)
    EXPECT_EQ(pauses.next(all[failures]), all[failures + 1]);
}

// given: text / expected: bytes, or nothing; and back, in the largest unit that divides it
TEST(size, is_a_whole_number_and_a_unit) {
  EXPECT_EQ(parse_size("1GiB"), 1u << 30);
  EXPECT_EQ(parse_size("0B"), 0u);
  EXPECT_EQ(parse_size("16777215TiB"), std::uint64_t{16777215} << 40);
  for (const char* bad : {"", "GiB", "1", "1 GiB", "-1B", "1gib", "1GB", "16777216TiB", "99999999999999999999B"})
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  for (const char* text : {"0B", "1B", "1023B", "1KiB", "1536MiB", "2TiB"})
    EXPECT_EQ(text_of_size(parse_size(text).value()), text);
}

// given: text / expected: milliseconds, or nothing
TEST(duration, is_a_whole_number_and_a_unit) {
  struct row {
    const char* text;
    std::optional<std::chrono::milliseconds> duration;
  };
  for (const auto& [text, duration] : std::vector<row>{
           {"500ms", 500ms},
           {"30s", 30s},
           {"2m", 2min},
           {"1h", 1h},
           {"0s", 0ms},
           {"007s", 7s},
           {"9223372036854775807ms", std::chrono::milliseconds(INT64_MAX)},
           {"", std::nullopt},
           {"s", std::nullopt},
           {"30", std::nullopt},
           {"30 s", std::nullopt},
           {" 30s", std::nullopt},
           {"30s ", std::nullopt},
           {"30sec", std::nullopt},
           {"-30s", std::nullopt},
           {"+30s", std::nullopt},
           {"1.5s", std::nullopt},
           {"1m30s", std::nullopt},
           {"9223372036854775807s", std::nullopt},
           {"9223372036854775808ms", std::nullopt},
       })
    EXPECT_EQ(parse_duration(text), duration) << text;
}

TEST(duration, is_read_back_as_written) {
  EXPECT_EQ(to_string(90s), "90s");
  EXPECT_EQ(to_string(2min), "2m");
  EXPECT_EQ(to_string(1500ms), "1500ms");
  EXPECT_EQ(to_string(0ms), "0s");
  for (std::int64_t x : {0, 1, 999, 1000, 60'000, 61'000, 3'600'000, 86'400'000, 123'456'789})
    EXPECT_EQ(parse_duration(to_string(std::chrono::milliseconds(x))), std::chrono::milliseconds(x));
}

} // namespace
} // namespace parcae
