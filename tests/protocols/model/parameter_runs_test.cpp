// Which parameters the optimizer treats in which way.

#include "protocols/model/parameter_runs.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

// given: texts and patterns / expected: as a shell has it
TEST(parameter_runs, patterns_are_a_shells) {
  for (const auto& [text, pattern] : std::vector<std::pair<const char*, const char*>>{{"", ""},
                                                                                      {"", "*"},
                                                                                      {"a", "a"},
                                                                                      {"a", "?"},
                                                                                      {"abc", "*"},
                                                                                      {"abc", "a*"},
                                                                                      {"abc", "*c"},
                                                                                      {"abc", "a*c"},
                                                                                      {"abcabd", "*ab?"},
                                                                                      {"a.b.c", "a.*.c"},
                                                                                      {"aaab", "*a*b"},
                                                                                      {"abc", "***"}})
    EXPECT_TRUE(fits(text, pattern)) << text << " " << pattern;
  for (const auto& [text, pattern] : std::vector<std::pair<const char*, const char*>>{{"a", ""},
                                                                                      {"", "?"},
                                                                                      {"ab", "a"},
                                                                                      {"ab", "b"},
                                                                                      {"abc", "a*b"},
                                                                                      {"abc", "*b"},
                                                                                      {"aXb", "a.b"},
                                                                                      {"aaaa", "*b*"}})
    EXPECT_FALSE(fits(text, pattern)) << text << " " << pattern;
}

// given: a GPT of width 4, options / expected: runs by hand; the tied head is treated as the embedding
TEST(parameter_runs, follow_the_options) {
  const model_specification gpt{.kind = "gpt", .layers = 1, .width = 4, .heads = 2, .sequence = 3, .vocabulary = 5};
  const auto model = describe(gpt);
  optimizer_specification x;
  EXPECT_THAT(parameter_runs(model, 1, x), ElementsAre(parameter_run{model.layers[1].parameters(), 1, true}));
  x.decay_norms_and_biases = false;
  // ln_1; c_attn; its bias; c_proj; its bias and ln_2; c_fc; bias; c_proj; bias
  EXPECT_THAT(parameter_runs(model, 1, x),
              ElementsAre(parameter_run{8, 1, false}, parameter_run{48, 1, true}, parameter_run{12, 1, false},
                          parameter_run{16, 1, true}, parameter_run{12, 1, false}, parameter_run{64, 1, true},
                          parameter_run{16, 1, false}, parameter_run{64, 1, true}, parameter_run{4, 1, false}));
  x.decay_norms_and_biases = true;
  x.rate_factors = "transformer.wte.* = 0.5 ,*.wpe.*=0,lm_head.weight=7, *.ln_f.*=2e-1";
  EXPECT_THAT(parameter_runs(model, 0, x), ElementsAre(parameter_run{20, 0.5, true}, parameter_run{12, 0, true}));
  EXPECT_THAT(parameter_runs(model, 2, x), ElementsAre(parameter_run{8, 0.2, true}, parameter_run{20, 0.5, true}));
  x.rate_factors = "*.weight=2,*=3";
  EXPECT_THAT(parameter_runs(model, 0, x), ElementsAre(parameter_run{32, 2, true})) << "the first that fits";
  EXPECT_EQ(rate_factors_problem(model, x), "");
}

// given: what is no factor, or fits no tensor / expected: named
TEST(parameter_runs, wrong_factors_are_named) {
  const auto model = describe({.kind = "mlp", .layers = 1, .width = 4});
  const auto problem = [&](const char* factors) { return rate_factors_problem(model, {.rate_factors = factors}); };
  EXPECT_EQ(problem(""), "");
  EXPECT_EQ(problem("  "), "");
  for (const auto* text : {"head.*", "head.*=", "=2", "head.*=x", "head.*=-1", "head.*=inf", "head.*=nan", "head.*=2 3",
                           "head.*=1e9", "head.*=1,,hidden.*=1"})
    EXPECT_THAT(problem(text), HasSubstr("optimizer.rate_factors has \"")) << text;
  EXPECT_THAT(problem("lm_head.*=2"),
              HasSubstr("\"lm_head.*\", which no tensor's name fits, such as embedding.weight"));
}

} // namespace
} // namespace parcae
