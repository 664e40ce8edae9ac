#include "protocols/wire/type_ids.hpp"

#include <caf/all.hpp>

#include <gmock/gmock.h>

namespace parcae {
namespace {

// given: every value from 1 until the first unknown one / expected: a name of its own that parses back
TEST(errors, names_parse_back) {
  std::set<std::string_view> names;
  std::uint8_t code = 1;
  for (; to_string(static_cast<parcae_error>(code)) != "unknown"; ++code) {
    auto x = static_cast<parcae_error>(code);
    EXPECT_EQ(parse_parcae_error(to_string(x)), x);
    names.insert(to_string(x));
  }
  EXPECT_EQ(names.size(), code - 1u);
  EXPECT_EQ(parse_parcae_error("no such error"), std::nullopt);
}

// given                              / expected
// our error with details             / the general text, then the details
// our error without                  / the general text
// errors and exit reasons of CAF     / words, and nothing of CAF's own text, whichever it is
// the empty error of a normal end    / words for that, and no crash
TEST(errors, render_for_people) {
  auto with = caf::make_error(parcae_error::duplicate_name, std::string("a"));
  EXPECT_EQ(render(with), "a living instance has that name: a");
  EXPECT_EQ(details_of(with), "a");
  EXPECT_EQ(render(caf::make_error(parcae_error::unknown_job)), "no such job");
  EXPECT_EQ(render(caf::error{}), "ended normally");
  EXPECT_EQ(render(caf::make_error(caf::sec::request_timeout)), "no answer in time");
  EXPECT_EQ(render(caf::make_error(caf::sec::cannot_connect_to_node, "127.0.0.1", 4242)), "nobody listens there");
  EXPECT_EQ(render(caf::make_error(caf::sec::cannot_connect_to_node, std::string("no way"))), "no way");
  EXPECT_EQ(render(caf::make_error(caf::sec::request_receiver_down)), "it has ended, or its connection has");
  EXPECT_EQ(render(caf::make_error(caf::exit_reason::remote_link_unreachable)), "its connection ended or fell silent");
  for (std::uint8_t code = 1; code < 60; ++code)
    for (const auto* category : {"system", "exit"}) {
      const caf::error x{code, caf::atom_from_string(category), caf::make_message(std::string("inside"))};
      EXPECT_THAT(render(x), testing::Not(testing::AnyOf(testing::HasSubstr("_"), testing::HasSubstr("(")))) << +code;
    }
}

} // namespace
} // namespace parcae
