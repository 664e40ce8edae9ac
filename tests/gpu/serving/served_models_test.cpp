// Models of Hugging Face, exported to be served: position by position, beside others, they go on as transformers has
// them go on (tests/python/export_models.py).

#include "gpu/serving/row_proof.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/model/exported_model.hpp"
#include "tests/support/served_pipeline.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace parcae {
namespace {

/// What transformers made of a prompt.
struct known_request {
  std::uint32_t prompt = 0;          ///< that many of the tokens
  std::vector<std::uint32_t> tokens; ///< the likeliest behind it, one after the other
  std::vector<double> ahead;         ///< of the next best, by logits
};

struct served_model : testing::TestWithParam<const char*> {
  void SetUp() override {
    at::set_num_threads(1);
    model.path = std::string(PARCAE_EXPORTED_MODELS) + "/" + GetParam();
    take_exported_model(model);
    const auto told = boost::json::parse(contents_of(model.path + "/served.json", 1 << 20));
    for (const auto& x : told.as_array())
      requests.push_back({boost::json::value_to<std::uint32_t>(x.at("prompt")),
                          boost::json::value_to<std::vector<std::uint32_t>>(x.at("tokens")),
                          boost::json::value_to<std::vector<double>>(x.at("ahead"))});
  }

  /// The logits of each position of each request, which go through in drawn passes; `alone`: one request after the
  /// other, in passes of the reference.
  std::vector<std::vector<at::Tensor>> logits(const row_proof& proof, std::uint32_t depth, bool alone) {
    std::mt19937_64 draw(depth);
    served_pipeline on(model, proof, depth, 1 << 20, 0);
    std::vector<std::vector<at::Tensor>> result(requests.size());
    for (std::uint64_t id = 0; id < requests.size(); ++id)
      EXPECT_TRUE(on.reserve(id, static_cast<std::uint32_t>(requests[id].tokens.size())));
    for (std::uint64_t first = 0; first < requests.size();) {
      const auto size = alone ? proof.reference : proof.sizes[draw() % proof.sizes.size()];
      std::vector<request_row> rows;
      for (auto id = first; id < (alone ? first + 1 : requests.size()); ++id) {
        const auto& tokens = requests[id].tokens;
        auto p = on.held(id);
        for (auto left = alone ? size : draw() % 5; left > 0 && rows.size() < size && p < tokens.size(); --left, ++p)
          rows.push_back({id, p, tokens[p]});
      }
      std::vector<std::uint32_t> wanted(rows.size());
      std::ranges::generate(wanted, [i = 0U]() mutable { return i++; });
      const auto found = on.run(rows, size, wanted);
      for (std::size_t i = 0; i < rows.size(); ++i)
        result[rows[i].request].push_back(found.select(0, static_cast<std::int64_t>(i)).clone());
      while (first < requests.size() && on.held(first) == requests[first].tokens.size())
        ++first;
    }
    return result;
  }

  model_specification model{.kind = "exported"};
  std::vector<known_request> requests;
};

// given: requests in drawn passes through one and two stages / expected: each has the bits that it has alone, and what
// transformers takes for the likeliest token is that, where the next best is not within 1e-4
TEST_P(served_model, goes_on_as_transformers_has_it) {
  const auto proof = prove_rows(model);
  const auto alone = logits(proof, 1, true);
  for (const std::uint32_t depth : {1, 2}) {
    const auto found = logits(proof, depth, false);
    for (std::size_t id = 0; id < requests.size(); ++id) {
      ASSERT_EQ(found[id].size(), alone[id].size());
      for (std::size_t p = 0; p < found[id].size(); ++p)
        ASSERT_TRUE(at::equal(found[id][p].view(at::kInt), alone[id][p].view(at::kInt))) << id << ", position " << p;
    }
  }
  std::size_t compared = 0, all = 0;
  for (std::size_t id = 0; id < requests.size(); ++id) {
    const auto& x = requests[id];
    for (std::size_t p = x.prompt; p < x.tokens.size(); ++p, ++all)
      if (x.ahead[p - x.prompt] > 1e-4) {
        ++compared;
        ASSERT_EQ(alone[id][p - 1].argmax().item<std::int64_t>(), x.tokens[p]) << id << ", position " << p;
      }
  }
  EXPECT_GT(compared, all * 3 / 4);
}

INSTANTIATE_TEST_SUITE_P(hugging_face, served_model, testing::Values("gpt2", "llama", "qwen2"),
                         [](const auto& x) { return std::string(x.param); });

} // namespace
} // namespace parcae
