// Builds: what a program says of itself, and what it says of a manager of another protocol.

#include "protocols/choreography/build.hpp"
#include "protocols/choreography/messages.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

// given: a program that has named itself / expected: that, and what a manager of it shows is no problem for another
// build of the protocol
TEST(build, is_named) {
  name_this_build("1.2.3", "abc");
  EXPECT_EQ(this_build(), "1.2.3 (build abc, protocol " + std::to_string(protocol_version) + ", LibTorch 2.11.0)");
  const auto shown = application_identifiers();
  name_this_build("1.2.4", "def");
  EXPECT_EQ(problem_of_manager(shown), "");
  EXPECT_EQ(problem_of_manager({application_identifier()}), "") << "older ones show no more";
}

// given: what a manager of another protocol shows / expected: both builds, and the package that is to be installed if
// it says which; nothing that is not for people, nor more than fits a line
TEST(build, another_protocol_is_told_what_to_install) {
  name_this_build("1.2.4", "def");
  EXPECT_THAT(
      problem_of_manager({"parcae-999", "parcae-999 2.0.1 (build 0123, protocol 999, LibTorch 3.0)"}),
      AllOf(StartsWith("the manager is 2.0.1 (build 0123, protocol 999, LibTorch 3.0), this is 1.2.4 (build def"),
            HasSubstr("`apt install ./parcae_2.0.1_amd64.deb`")));
  EXPECT_THAT(problem_of_manager({"parcae-1"}), AllOf(StartsWith("the manager is parcae-1, this is 1.2.4"),
                                                      HasSubstr("here its package, or this one there")));
  EXPECT_THAT(problem_of_manager({}), StartsWith("the manager is nothing"));
  for (const auto& x :
       {std::string("parcae-9 a\nb\x1b[2J`;rm"), "parcae-9 " + std::string(100'000, '9'), std::string("parcae-8 1.0")})
    EXPECT_THAT(problem_of_manager({"parcae-9", x}),
                AllOf(Not(HasSubstr("\n")), Not(HasSubstr("\x1b")), SizeIs(testing::Lt(900u))))
        << x.substr(0, 100);
  EXPECT_THAT(problem_of_manager({"parcae-9", "parcae-9 a`;rm"}), EndsWith("here its package, or this one there"));
}

} // namespace
} // namespace parcae
