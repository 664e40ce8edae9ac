#include "tests/gpu/training/nccl_findings.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

nccl_findings good() {
  return {{{"two nodes train", {"nccl", "H200", {}}}, {"kill", {"nccl", "H200", {}}, "42 MB moved"}}, {}, "ab", "ab"};
}

// given: NCCL throughout / expected: supported, as a table
TEST(nccl_findings, all_holds) {
  const auto x = verdict_of(good());
  EXPECT_EQ(x.status, 0);
  EXPECT_EQ(x.text, "two nodes train  nccl\n"
                    "kill             nccl; 42 MB moved\n"
                    "parameters       the undisturbed run's\n"
                    "supported\n");
}

// given: NCCL that refuses, or is given up after a kill / expected: a result, with the reason that status has
TEST(nccl_findings, a_refusal_is_a_result) {
  auto x = good();
  x.rows[1].transport = {"tcp", "H200", "b/0: invalid usage"};
  EXPECT_EQ(verdict_of(x).status, 0);
  EXPECT_THAT(verdict_of(x).text, EndsWith("\nunsupported (kill): b/0: invalid usage\n"));
  x.rows[0].transport = {"tcp", "H200", {}};
  EXPECT_THAT(verdict_of(x).text, EndsWith("\nunsupported (two nodes train): no reason was given\n"));
}

// given: other bits, a standstill, a run without an end / expected: failed, whatever moved its tensors
TEST(nccl_findings, wrong_bits_and_hangs_fail) {
  auto x = good();
  x.digest = "cd";
  EXPECT_EQ(verdict_of(x).status, 1);
  EXPECT_THAT(verdict_of(x).text, EndsWith("DIFFERENT\nFAILED: the bits are not those of the undisturbed run\n"));
  x = good();
  x.faults = {"no step for 120 s"};
  EXPECT_EQ(verdict_of(x).status, 1);
  EXPECT_THAT(verdict_of(x).text, EndsWith("\nFAILED: no step for 120 s\n"));
  x = good();
  x.digest = x.expected = "";
  EXPECT_EQ(verdict_of(x).status, 1);
}

} // namespace
} // namespace parcae
