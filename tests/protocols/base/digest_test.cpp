#include "protocols/base/digest.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

// given: FIPS 180-2's example, whole and in pieces / expected: its digest
TEST(sha256, is_that_of_fips_180) {
  constexpr auto expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(sha256_of("abc"), expected);
  sha256 pieces;
  pieces.add("a");
  pieces.add("bc");
  EXPECT_EQ(pieces.hexadecimal(), expected);
}

// given: RFC 4231, test case 2 / expected: its code
TEST(hmac_sha256, is_that_of_rfc_2104) {
  constexpr std::string_view key = "Jefe";
  EXPECT_EQ(hexadecimal(hmac_sha256(std::as_bytes(std::span(key)), "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

// given / expected: bytes come back from base64; what is none is refused
TEST(base64, is_that_of_rfc_4648) {
  for (const auto* x : {"", "f", "fo", "foo", "foob", "fooba", "foobar"})
    EXPECT_EQ(from_base64(to_base64(x)), x);
  EXPECT_EQ(to_base64("fooba"), "Zm9vYmE=");
  for (const auto* bad : {"Z", "Zm9", "Zm9v*mE=", "===="})
    EXPECT_FALSE(from_base64(bad)) << bad;
}

} // namespace
} // namespace parcae
