// Steps whose loss or gradients are not finite: the job stops there, or leaves them out, with the same bits whatever
// comes and goes.

#include "gpu/checkpoint/published_layout.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "gpu/checkpoint/weights.hpp"
#include "protocols/model/model_description.hpp"
#include "tests/support/data_folder.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/names.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <future>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace parcae {
namespace {

constexpr int images = 96, red_image = 50;

/// All are without red but one; and the first layer has no use for red but to overflow.
class not_finite_test : public testing::Test {
protected:
  not_finite_test() {
    std::ofstream data(folder_.path() / "images.bin", std::ios::binary);
    for (int i = 0; i < images; ++i) {
      std::string one(1 + 3 * 64, '\0');
      one[0] = static_cast<char>(i % 2);
      for (std::size_t p = 0; p < 64; ++p) {
        one[1 + p] = static_cast<char>(i == red_image ? 255 : 0);
        one[1 + 64 + p] = static_cast<char>((static_cast<std::size_t>(i) * 37 + p * 11) % 256);
        one[1 + 128 + p] = static_cast<char>(i % 2 * 60 + i);
      }
      data << one;
    }
    job = small_job();
    job.steps = 9;
    job.optimizer.schedule = "constant";
    job.optimizer.warmup_steps = 0;
    job.on_not_finite = "skip";
    job.global_batch = 16; // a step in six has the red image
    job.micro_batch = 2;
    job.virtual_replicas = 4;
    job.keeper_every = 1;
    job.data = {};
    job.data.kind = "images";
    job.data.path = (folder_.path() / "images.bin").string();
    job.data.mean = {0, 0, 0};
    job.data.deviation = {1, 1, 1};
    job.model = {.kind = "resnet", .layers = 8, .width = 4, .heads = 1, .sequence = 1, .vocabulary = 2, .dropout = 0};
    job.model.image = 8;
    job.model.classes = 2;
    take_weights_with(3e38f);
  }

  /// The input channel that only the red image has, or the token that no text has: this.
  void take_weights_with(float value) {
    std::vector<safetensors_entry> entries;
    std::string bytes;
    std::uint32_t state = 1;
    for (const auto& layer : describe(job.model).layers)
      for (const auto* tensors : {&layer.tensors, &layer.buffers})
        for (const auto& x : *tensors) {
          entries.push_back({x.name, published_shape(job.model, x)});
          const auto& extents = entries.back().shape;
          const auto n = std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
          const bool first = entries.size() == 1, of_images = extents.size() == 4;
          const auto unused = of_images ? extents[2] * extents[3] : extents.back();
          for (std::int64_t i = 0; i < n; ++i) {
            state = state * 1664525 + 1013904223;
            auto drawn = static_cast<float>(state >> 16) / 65536.0f * 0.4f - 0.2f;
            if (extents.size() == 1) // a bias, or of a norm
              drawn = x.name.ends_with("weight") || x.name.ends_with("var") ? 1.0f : 0.0f;
            if (first && (of_images ? i % (extents[1] * unused) < unused : i >= n - unused))
              drawn = value;
            bytes.append(reinterpret_cast<const char*>(&drawn), sizeof drawn);
          }
        }
    const auto path = folder_.path() / "model.safetensors";
    std::ofstream(path, std::ios::binary) << safetensors_header(entries, {{"format", "pt"}}) << bytes;
    job.model.weights = path.string();
    take_weights(job.model);
  }

  struct run {
    bool good = false;
    std::string why; ///< it ended
    std::string digest;
    std::optional<std::uint64_t> skipped; ///< the first step that was not finite
    std::uint64_t steps = 0;
  };

  static run run_of(executor_cluster& cluster) {
    run x;
    x.good = cluster.run_until_ended();
    x.why = cluster.log().back();
    x.digest = cluster.final_digest();
    for (const auto& [step, loss] : cluster.losses())
      if (!std::isfinite(loss) && !x.skipped)
        x.skipped = step;
    x.steps = cluster.view().steps_done;
    return x;
  }

  static run undisturbed(const job_specification& of) {
    executor_cluster cluster(of);
    cluster.keep_shape(1, 1);
    cluster.add_keeper("keeper");
    cluster.add_worker("alone");
    return run_of(cluster);
  }

  data_folder folder_;
  job_specification job;
};

// given: a sample that overflows, and a keeper that has what was before / expected: the job stops at its step, says so,
// and the keeper writes that
TEST_F(not_finite_test, ends_the_job_by_default) {
  const auto step = undisturbed(job).skipped;
  ASSERT_TRUE(step && *step > 0);
  job.on_not_finite = job_specification().on_not_finite;
  std::promise<void> is_kept;
  bool heard = false;
  executor_cluster cluster(job);
  cluster.keep_shape(1, 1);
  cluster.on_report = [&](const slot_id&, const report& x) {
    const auto* k = std::get_if<kept>(&x);
    if (k && std::ranges::any_of(k->held, [&](const auto& y) { return y.at.steps == *step; }) &&
        !std::exchange(heard, true))
      is_kept.set_value();
  };
  cluster.add_keeper("keeper");
  cluster.add_worker("alone", [&, before = is_kept.get_future().share()](const fault_point& at) {
    if (std::string_view(at.phase) == "forward" && at.step == *step) {
      EXPECT_EQ(before.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }
    return fault_action::none;
  });
  const auto x = run_of(cluster);
  EXPECT_FALSE(x.good);
  EXPECT_THAT(x.why, HasSubstr("the loss is not finite at step " + std::to_string(*step + 1)));
  EXPECT_THAT(x.why, HasSubstr("the keepers write step " + std::to_string(*step) + " to "));
  EXPECT_EQ(x.steps, *step);
}

// given: the same, skipped / expected: the version after it has all bits of the one before, running statistics too
TEST_F(not_finite_test, a_skipped_step_changes_nothing) {
  auto all = undisturbed(job);
  ASSERT_TRUE(all.good) << all.why;
  ASSERT_TRUE(all.skipped && *all.skipped > 0 && *all.skipped + 1 < job.steps);
  job.steps = *all.skipped;
  const auto before = undisturbed(job).digest;
  job.steps = *all.skipped + 1;
  EXPECT_EQ(undisturbed(job).digest, before);
  job.steps = *all.skipped + 2;
  EXPECT_NE(undisturbed(job).digest, before);
  EXPECT_NE(all.digest, before);
}

// given: other shapes in turn; workers killed in the skipped step / expected: the same bits
TEST_F(not_finite_test, skips_alike_whatever_comes_and_goes) {
  const auto expected = undisturbed(job);
  ASSERT_TRUE(expected.good) << expected.why;
  ASSERT_TRUE(expected.skipped);
  EXPECT_EQ(digest_after(job, {{2, 2}, {1, 3}, {4, 1}}), expected.digest);
  for (const auto* phase : {"reduced", "exchange_send", "exchanged", "apply", "committed", "snapshot"}) {
    SCOPED_TRACE(phase);
    std::atomic<bool> done = false;
    const auto once = [&, step = *expected.skipped + (std::string_view(phase) == "committed" ||
                                                      std::string_view(phase) == "snapshot")](const fault_point& at) {
      const bool now = std::string_view(at.phase) == phase && at.step == step && !done.exchange(true);
      return now ? fault_action::kill : fault_action::none;
    };
    executor_cluster cluster(job);
    cluster.planner = [&](std::uint32_t slots, const auto&) {
      return slots >= 4 ? shape(job, 2, 2) : shape(job, slots, 1);
    };
    cluster.add_keeper("keeper");
    cluster.add_workers({"a", "b", "c", "d"}, once);
    const auto x = run_of(cluster);
    EXPECT_TRUE(x.good) << x.why;
    EXPECT_EQ(x.digest, expected.digest);
    EXPECT_TRUE(done) << "nobody was killed";
  }
}

// given: parameters that are infinite, and an image that shows it / expected: to skip steps for ever is no way out
TEST_F(not_finite_test, what_skipping_does_not_mend_ends_the_job) {
  take_weights_with(HUGE_VALF);
  const auto x = undisturbed(job);
  EXPECT_FALSE(x.good);
  EXPECT_THAT(x.why, HasSubstr("the loss is not finite at step 1, nor are the parameters of layer 0"));
  EXPECT_THAT(x.why, HasSubstr("nothing is kept"));
}

// given: parameters that are infinite, and no loss that shows it / expected: no version with them is kept, but if that
// is wanted
TEST_F(not_finite_test, no_version_is_kept_that_is_not_finite) {
  job = small_job();
  job.steps = 3;
  job.model.tied_embeddings = false;
  job.model.vocabulary = 257;
  take_weights_with(HUGE_VALF);
  for (const auto* how : {"stop", "skip"}) {
    job.on_not_finite = how;
    const auto x = undisturbed(job);
    EXPECT_FALSE(x.good);
    EXPECT_THAT(x.why, HasSubstr("the parameters of layer 0 are not finite after step 1; nothing is kept"));
  }
  job.on_not_finite = "go_on";
  EXPECT_TRUE(undisturbed(job).good);
}

} // namespace
} // namespace parcae
