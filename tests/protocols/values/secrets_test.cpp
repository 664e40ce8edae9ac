#include "protocols/values/secrets.hpp"

#include <gtest/gtest.h>

#include <set>

using namespace parcae;

// given: a key, a purpose and words / expected: what Python's hmac.new(key, b"stream\0" + words, "sha256") says
TEST(secrets, follow_by_hmac_sha256) {
  const secret_key key{{1, 2, 3, 0xfeedfacecafebeef}};
  const secret_key expected{{0x117ac017f3c0c3a9, 0x59f8fe0924214d16, 0x8979a063f70da3f7, 0x4eda3f8f554e37be}};
  EXPECT_TRUE(key_of(key, "stream", {0x0123456789abcdef, 7}) == expected);
  const auto permit = permit_of(key, {"spot-a", {0x0123456789abcdef}, 7});
  const auto named = key_of(key, "stream spot-a", {0x0123456789abcdef, 7});
  EXPECT_TRUE(permit.token == (data_token{named.words[0], named.words[1]}));
}

TEST(secrets, are_of_one_use) {
  const secret_key a{{1}}, b{{1, 1}};
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  for (const auto& x : {token_of(a, "x", {}), token_of(b, "x", {}), token_of(a, "y", {}), token_of(a, "x", {0}),
                        token_of(a, "x", {0, 0}), token_of(a, "x", {1}), token_of(a, "x", {1ull << 32})})
    EXPECT_TRUE(seen.emplace(x.high, x.low).second);
  EXPECT_TRUE(random_secret() != random_secret());
}

// given: two that differ in one bit, any / expected: not equal
TEST(secrets, are_compared_whole) {
  const auto key = random_secret();
  for (unsigned bit = 0; bit < 256; ++bit) {
    auto other = key;
    other.words[bit / 64] ^= 1ull << bit % 64;
    EXPECT_FALSE(other == key);
  }
  const data_token token{3, 4};
  for (unsigned bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(token == (data_token{3 ^ 1ull << bit, 4}));
    EXPECT_FALSE(token == (data_token{3, 4 ^ 1ull << bit}));
  }
  EXPECT_TRUE(token == (data_token{3, 4}));
}
