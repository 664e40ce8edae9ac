// The table of keys: what it prints, what it holds values to.

#include "protocols/values/job_keys.hpp"
#include "runtime/job/job_file.hpp"
#include "tests/support/names.hpp"

#include <cmath>
#include <fstream>
#include <sstream>

namespace parcae {
namespace {

// given: the table of keys / expected: runtime/README.md has what is printed, no line is too long, every key is there
TEST(job_keys, are_in_the_readme) {
  const auto reference = job_reference();
  std::ostringstream readme;
  readme << std::ifstream{PARCAE_EXAMPLES "/../../runtime/README.md"}.rdbuf();
  EXPECT_THAT(readme.str(), HasSubstr(reference)) << "paste what `parcae job-keys` prints";
  std::istringstream lines(reference);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 160u) << line;
  for (const auto& key : job_keys())
    EXPECT_THAT(reference, HasSubstr("  " + std::string(key.name) + " ")) << path_of(key);
}

// given: the ranges in the table / expected: both ends are accepted, what is beyond is refused and names the key
TEST(job_keys, ranges_are_checked) {
  for (const auto& key : job_keys()) {
    const auto path = path_of(key);
    const auto problem_with = [&](const auto& value) {
      job_draft x;
      x.job.data.path = "x";
      if (key.kinds == "synthetic")
        x.job.data.kind = key.kinds;
      bool fits = false;
      std::visit(
          [&](auto* target) {
            using field = std::remove_pointer_t<decltype(target)>;
            using given = std::remove_cvref_t<decltype(value)>;
            constexpr bool is_number = std::is_same_v<field, std::uint32_t> || std::is_same_v<field, std::uint64_t>;
            if constexpr (std::is_same_v<field, given> || (is_number && std::is_same_v<given, std::uint64_t>)) {
              fits = true;
              *target = static_cast<field>(value);
            }
          },
          key.target(x));
      EXPECT_TRUE(fits) << path << " is of a type that its range is not for";
      return problem_of(x.job);
    };
    if (const auto* whole = std::get_if<whole_range>(&key.range)) {
      EXPECT_THAT(problem_with(whole->most + 1), StartsWith(path + " is "));
      EXPECT_THAT(problem_with(whole->most),
                  Not(StartsWith(path + " is " + std::to_string(whole->most) + ", must be")));
      if (whole->least > 0) {
        EXPECT_THAT(problem_with(whole->least - 1), StartsWith(path + " is "));
      }
    } else if (const auto* real = std::get_if<real_range>(&key.range)) {
      EXPECT_THAT(problem_with(real->below), StartsWith(path + " must be at least "));
      EXPECT_THAT(problem_with(std::nextafter(real->below, real->least)), Not(StartsWith(path + " ")));
      EXPECT_THAT(problem_with(real->least), Not(StartsWith(path + " ")));
      EXPECT_THAT(problem_with(std::nextafter(real->least, -1)), StartsWith(path + " must be at least "));
      EXPECT_THAT(problem_with(std::nan("")), StartsWith(path + " must be at least "));
    } else if (const auto* text = std::get_if<text_length>(&key.range)) {
      for (const auto& bad :
           {std::string(text->most + 1, 'x'), std::string(std::max<std::size_t>(text->least, 1), '\n')})
        EXPECT_THAT(problem_with(bad), StartsWith(path + " must have "));
      EXPECT_THAT(problem_with(std::string(text->most, 'x')), Not(StartsWith(path + " ")));
      if (text->least > 0) {
        EXPECT_THAT(problem_with(std::string(text->least - 1, 'x')), StartsWith(path + " must have "));
      }
    } else if (std::holds_alternative<one_of>(key.range)) {
      EXPECT_THAT(problem_with(std::string("other")), StartsWith(path + " is \"other\", must be one of \""));
    }
  }
}

} // namespace
} // namespace parcae
