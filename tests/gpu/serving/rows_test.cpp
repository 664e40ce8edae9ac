// A token is a row: what a request gets depends on no pass, neighbour, block, loss or cut into stages.
// ctest runs this on several of MKL's code paths, which its environment names.

#include "gpu/serving/row_proof.hpp"
#include "gpu/serving/sampler.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/support/served_pipeline.hpp"
#include "tests/support/thrown_by.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>

namespace parcae {
namespace {

using testing::HasSubstr;

const model_specification model{
    .kind = "gpt", .layers = 4, .width = 40, .heads = 4, .sequence = 96, .vocabulary = 97, .dropout = 0.1};
constexpr std::uint64_t seed = 3;

std::uint32_t below(std::mt19937_64& draw, std::uint64_t end) {
  return static_cast<std::uint32_t>(draw() % end);
}

/// What a client asks for, and what it has got.
struct request {
  std::vector<std::uint32_t> tokens; ///< the prompt, then the answer
  std::size_t most = 0;              ///< tokens in the end
  sampling how;
  std::vector<std::vector<float>> logits; ///< of each token of the answer

  std::uint32_t known() const { return static_cast<std::uint32_t>(tokens.size()); }
  bool is_over() const { return tokens.size() >= most; }
  bool operator==(const request& other) const { return tokens == other.tokens && logits == other.logits; }
};

std::vector<request> drawn_requests(std::size_t count, std::uint64_t of) {
  std::mt19937_64 draw(of);
  std::vector<request> result(count);
  for (auto& x : result) {
    x.tokens.resize(1 + below(draw, 50));
    for (auto& token : x.tokens)
      token = below(draw, model.vocabulary);
    x.most = x.tokens.size() + 1 + below(draw, 30);
    const double temperatures[] = {0, 0.7, 1, 1.5};
    x.how = {.seed = draw(),
             .temperature = temperatures[below(draw, 4)],
             .top_p = below(draw, 2) == 0 ? 1 : 0.9,
             .top_k = below(draw, 2) == 0 ? 0U : 10U};
  }
  return result;
}

/// Rows of a pass: what each request takes of what it has not computed yet.
class pass_of_rows {
public:
  explicit pass_of_rows(served_pipeline& on) : on_(on) {}

  void take(std::uint64_t id, request& x, std::uint32_t count) {
    const auto held = on_.held(id);
    count = std::min(count, x.known() - held);
    for (auto p = held; p < held + count; ++p)
      rows_.push_back({id, p, x.tokens[p]});
    if (count > 0 && held + count == x.known())
      yields_.emplace_back(rows_.size() - 1, &x);
  }

  std::size_t rows() const { return rows_.size(); }

  void run(std::size_t size) {
    std::vector<std::uint32_t> wanted;
    for (const auto& [row, x] : yields_)
      wanted.push_back(static_cast<std::uint32_t>(row));
    const auto logits = on_.run(rows_, size, wanted).cpu().contiguous();
    for (std::size_t i = 0; i < yields_.size(); ++i) {
      auto& x = *yields_[i].second;
      const std::span of(logits.data_ptr<float>() + i * model.vocabulary, model.vocabulary);
      x.logits.emplace_back(of.begin(), of.end());
      x.tokens.push_back(token_of(of, x.how, x.known()));
    }
  }

private:
  served_pipeline& on_;
  std::vector<request_row> rows_;
  std::vector<std::pair<std::size_t, request*>> yields_;
};

/// Nobody else is there: the prompt in passes of the reference, then token by token.
void run_alone(const row_proof& proof, std::vector<request>& requests, const tensor_device& there) {
  for (auto& x : requests) {
    served_pipeline on(model, proof, 1, 1 << 20, seed, there);
    ASSERT_TRUE(on.reserve(0, static_cast<std::uint32_t>(x.most)));
    while (!x.is_over()) {
      pass_of_rows pass(on);
      pass.take(0, x, proof.reference);
      pass.run(proof.reference);
    }
  }
}

/// Blocks of the store are given out in a drawn order from here on.
void mix_blocks(cache_store& caches, std::mt19937_64& draw) {
  std::vector<std::uint64_t> ids(caches.blocks());
  std::iota(ids.begin(), ids.end(), 1'000'000);
  for (const auto id : ids)
    caches.reserve(id, 1); // as many as there is room for
  std::ranges::shuffle(ids, draw);
  for (const auto id : ids)
    caches.release(id);
}

/// All together in drawn passes: of any size and any rows, while caches are lost, in all stages or in one. Returns how
/// many were.
std::size_t run_together(const row_proof& proof, std::vector<request>& requests, std::uint32_t depth, std::uint64_t of,
                         const tensor_device& there) {
  std::mt19937_64 draw(of);
  served_pipeline on(model, proof, depth, 4 << 20, seed, there);
  for (std::size_t s = 0; s < depth; ++s)
    mix_blocks(on.caches(s), draw);
  const auto reserve = [&](std::uint64_t id) {
    EXPECT_TRUE(on.reserve(id, static_cast<std::uint32_t>(requests[id].most)));
  };
  std::vector<std::uint64_t> left(requests.size());
  std::iota(left.begin(), left.end(), 0);
  std::ranges::for_each(left, reserve);
  std::size_t lost = 0;
  while (!left.empty()) {
    if (below(draw, 4) == 0) {
      const auto id = left[below(draw, left.size())];
      lost += on.held(id) > 0;
      if (below(draw, 2) == 0)
        on.release(id);
      else
        on.caches(below(draw, depth)).release(id);
      reserve(id);
    }
    std::ranges::shuffle(left, draw);
    const auto size = proof.sizes[below(draw, proof.sizes.size())];
    pass_of_rows pass(on);
    for (const auto id : left)
      pass.take(id, requests[id], std::min<std::uint32_t>(1 + below(draw, 12), size - pass.rows()));
    pass.run(size);
    std::erase_if(left, [&](auto id) {
      if (requests[id].is_over())
        on.release(id);
      return requests[id].is_over();
    });
  }
  for (std::size_t s = 0; s < depth; ++s)
    EXPECT_EQ(on.caches(s).free_blocks(), on.caches(s).blocks());
  return lost;
}

/// given: requests in drawn passes, cut into stages, caches lost / expected: tokens and logits of each alone, bit for
/// bit
void expect_what_each_gets_alone(std::size_t count, std::initializer_list<std::uint32_t> depths,
                                 const tensor_device& there = processor()) {
  const auto proof = prove_rows(model, there);
  auto alone = drawn_requests(count, 1);
  run_alone(proof, alone, there);
  for (const auto depth : depths) {
    auto together = drawn_requests(count, 1);
    EXPECT_GT(run_together(proof, together, depth, depth, there), count / 4);
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_TRUE(together[i] == alone[i]) << "request " << i << ", " << depth << " stages";
  }
}

class serving : public testing::Test {
protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(1); }
};

TEST_F(serving, a_request_gets_what_it_gets_alone) {
  expect_what_each_gets_alone(24, {1, 2, 3});
}

TEST_F(serving, and_with_two_threads) {
  at::set_num_threads(2); // whose bits may be others than those of one
  expect_what_each_gets_alone(6, {2});
}

// given: a device whose memory the processor cannot touch / expected: the same, of runs there
TEST_F(serving, and_on_a_device) {
  know_fake_devices();
  expect_what_each_gets_alone(8, {2}, tensor_device(fake_device(0)));
}

// given: a sequence row by row, and as a whole / expected: the same logits to rounding, the same best token where the
// two best are further apart than that
TEST_F(serving, rows_agree_with_the_whole_sequence) {
  const auto proof = prove_rows(model);
  served_pipeline on(model, proof, 2, 1 << 20, seed);
  const auto whole = layers_of(model, 0, model.layers + 2, seed);
  auto x = drawn_requests(1, 7).front();
  std::mt19937_64 draw(8);
  while (x.tokens.size() < model.sequence)
    x.tokens.push_back(below(draw, model.vocabulary));
  const c10::NoGradGuard no_gradient;
  at::Tensor expected = at::empty({1, model.sequence}, at::kLong);
  std::ranges::copy(x.tokens, expected.data_ptr<std::int64_t>());
  for (std::size_t i = 0; i < whole.all.size(); ++i)
    expected = whole.all[i]->forward(whole.parameters[i], expected, {.training = false});
  ASSERT_TRUE(on.reserve(0, model.sequence));
  std::size_t compared = 0;
  for (std::uint32_t p = 0; p < model.sequence; ++p) {
    const request_row row{0, p, x.tokens[p]};
    const std::uint32_t wanted = 0;
    const auto found = on.run({&row, 1}, proof.reference, {&wanted, 1}).select(0, 0);
    const auto there = expected.select(0, 0).select(0, p);
    EXPECT_TRUE(at::allclose(found, there, 1e-4, 1e-5)) << "position " << p;
    const auto best = std::get<0>(there.topk(2));
    if ((best[0] - best[1]).item<double>() > 1e-4) {
      ++compared;
      EXPECT_EQ(found.argmax().item<std::int64_t>(), there.argmax().item<std::int64_t>());
    }
  }
  EXPECT_GT(compared, model.sequence * 3 / 4);
}

// --- the proof

using row_proof_test = serving;

bool is_forced(const char* what, const char* to) {
  const auto* found = std::getenv(what);
  return found && std::strcmp(found, to) == 0;
}

// given: passes of 5 rows of a width of 3, of which element-wise operators compute the last by another function than
// the rest / expected: refused, with size and layer; of 16 rows: proven, with what the layers keep
TEST_F(row_proof_test, sees_where_rows_differ) {
  const model_specification narrow{
      .kind = "gpt", .layers = 2, .width = 3, .heads = 1, .sequence = 16, .vocabulary = 32};
  EXPECT_THAT(thrown_by<row_proof_error>([&] { prove_rows(narrow, processor(), {5}); }),
              AllOf(HasSubstr("passes of 5"), HasSubstr("block 0")));
  const auto proof = prove_rows(narrow);
  EXPECT_EQ(proof.reference, 16u);
  EXPECT_TRUE(std::ranges::is_sorted(proof.sizes));
  EXPECT_EQ(proof.shapes, (kept_shapes{{1, {1, 1, 3}}, {2, {1, 1, 3}}}));
  EXPECT_EQ(proof.size_for(16), 16u);
  EXPECT_EQ(proof.size_for(proof.largest()), proof.largest());
}

// given: MKL's code for any processor, which takes rows of a pass of 10 in groups; on Intel's processors that for AVX2,
// which does so in a pass of 32 / expected: the proof sees it
TEST_F(row_proof_test, sees_kernels_that_depend_on_the_place) {
  const auto accepts = [](std::uint32_t rows) {
    return thrown_by<row_proof_error>([=] { prove_rows(model, processor(), {rows}); }).empty();
  };
  if (is_forced("MKL_CBWR", "COMPATIBLE")) {
    EXPECT_FALSE(accepts(10));
  }
  if (is_forced("MKL_ENABLE_INSTRUCTIONS", "AVX2") && __builtin_cpu_is("intel")) {
    EXPECT_FALSE(accepts(32));
  }
}

} // namespace
} // namespace parcae
