// A source that trains, and a destination that follows its layers, over loopback: bits, what is cold, what waits.

#include "gpu/layers/optimizer.hpp"
#include "gpu/training/layer_room.hpp"
#include "gpu/training/shard_follower.hpp"
#include "gpu/training/state_feed.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/support/eventually.hpp"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <optional>
#include <span>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using rig::patience;

constexpr generation trained{2};

bool same_bits(const at::Tensor& x, const at::Tensor& y) {
  return x.defined() == y.defined() &&
         (!x.defined() ||
          (x.nbytes() == y.nbytes() && std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0));
}

/// Participant 0 trains layers 0 to 2, and participant 1 follows them.
class followed : public ::testing::Test {
protected:
  void begin(job_specification job) {
    if (!of_source_.on_fault_point)
      of_source_.on_fault_point = [this](const fault_point& x) { see(x); };
    nodes_.emplace(2);
    auto& plan = nodes_->plan;
    plan.specification = std::move(job);
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      plan.moves.push_back({layer, 0, 1});
    model_ = describe(plan.specification.model);
    layer_room room(processor());
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      held_[layer] = seed_layer(model_, layer, plan.specification, processor());
      held_[layer].at = at_;
      arriving_[layer] = allocate_layer(model_, layer, plan.specification, processor(), room);
      if (layer == 2)
        held_[layer].course = at::zeros({2}, at::kFloat);
      if (layer == 2)
        arriving_[layer].course = at::zeros({2}, at::kFloat);
    }
    auto other = std::async(std::launch::async, [this] { return nodes_->connect_state(1); });
    ends_.push_back(nodes_->connect_state(0));
    ends_.push_back(other.get());
    feeds_.emplace(*ends_[0], plan, 0, model_, processor(), of_source_, [this](const auto&) { ++failures_; });
  }

  void follow() {
    follower_.emplace(*ends_[1], nodes_->plan, 1, model_, processor(), arriving_, of_destination_,
                      shard_follower::callbacks{[this](std::uint64_t bytes, double) {
                                                  bytes_ = bytes;
                                                  warm_.set_value();
                                                },
                                                [this](const auto&) { ++failures_; }});
  }

  /// At the source's fault points.
  void see(const fault_point& x) {
    sent_ += x.phase == std::string("feed_gradient");
    if (x.phase == std::string("feed_copy"))
      copied_[x.index] = true;
  }

  /// A step takes longer than copying layers and sending its gradients does.
  void step_in_time(bool skipped = false) {
    step(skipped, true);
    while (sent_ < taken_)
      std::this_thread::yield();
  }

  /// As stage_training does.
  void step(bool skipped = false, bool behind_copies = false) {
    const auto& job = nodes_->plan.specification;
    std::map<std::uint32_t, at::Tensor> gradients;
    for (auto& [layer, state] : held_)
      gradients[layer] = at::randn(state.parameters.sizes());
    const auto gradient = [&](auto layer) -> const at::Tensor& {
      ++taken_;
      taken_of_[layer] = true;
      return gradients.at(layer);
    };
    feeds_->complete(at_, 2, gradient); // first of all, as its backward pass is
    feeds_->complete(at_, gradient);
    for (std::uint32_t layer = 0; layer < 3 && behind_copies; ++layer)
      while (taken_of_[layer] && !copied_[layer])
        std::this_thread::yield();
    commit_result result;
    result.learning_rate = 0.01 / static_cast<double>(1 + at_.steps);
    result.clip_factor = 0.7;
    const version next{at_.steps + 1, trained};
    const validation_course course{.best = 1.0f / static_cast<float>(next.steps), .worse = 3};
    feeds_->decided(next, result, skipped, course);
    for (auto& [layer, state] : held_) {
      if (!skipped)
        apply_optimizer(job.optimizer, state.parameters, state.moments, gradients.at(layer), at_.steps,
                        result.learning_rate, result.clip_factor, parameter_runs(model_, layer, job.optimizer));
      if (!skipped && state.buffers.defined())
        state.buffers.add_(0.5);
      if (state.course.defined())
        set_course(state, course);
      state.at = next;
    }
    at_ = next;
    feeds_->applied(held_, at_);
  }

  void expect_same(const std::set<std::uint32_t>& layers) {
    for (const auto layer : layers) {
      const auto mine = held_.at(layer).parts(), theirs = arriving_.at(layer).parts();
      ASSERT_EQ(mine.size(), theirs.size());
      for (std::size_t i = 0; i < mine.size(); ++i)
        EXPECT_TRUE(same_bits(mine[i], theirs[i])) << "layer " << layer << ", part " << i << " at " << to_string(at_);
    }
  }

  void TearDown() override {
    for (const auto& x : ends_)
      x->abort();
    follower_.reset();
    feeds_.reset();
  }

  std::optional<rig::cluster> nodes_;
  std::vector<std::unique_ptr<communicator>> ends_;
  model_description model_;
  version at_{3, {1}};
  layer_store held_, arriving_;
  executor_options of_source_, of_destination_;
  std::atomic<int> failures_ = 0, taken_ = 0, sent_ = 0; ///< gradients
  std::array<std::atomic<bool>, 3> copied_{};
  std::array<bool, 3> taken_of_{};
  std::atomic<std::uint64_t> bytes_ = 0;
  std::promise<void> warm_;
  std::optional<state_feeds> feeds_;
  std::optional<shard_follower> follower_;
};

job_specification trained_by(const std::string& kind, const std::string& optimizer) {
  auto job = small_job_of(kind);
  job.optimizer.kind = optimizer;
  if (optimizer == "sgd")
    job.optimizer.momentum = 0.9;
  return job;
}

class each_kind : public followed, public ::testing::WithParamInterface<std::pair<const char*, const char*>> {};

// given: layers with matrices and none, with running statistics, with a course; steps of which one is skipped /
// expected: whatever the version at which a layer began to be followed, and the feed ended, the source's bits
TEST_P(each_kind, has_the_bits_of_the_source) {
  begin(trained_by(GetParam().first, GetParam().second));
  follow();
  feeds_->applied(held_, at_); // WARM comes between two steps
  auto warm = warm_.get_future();
  for (int i = 0; i < 100 && warm.wait_for(10ms) != std::future_status::ready; ++i)
    step_in_time(i == 1);
  ASSERT_EQ(warm.wait_for(0ms), std::future_status::ready);
  for (int i = 0; i < 5; ++i)
    step_in_time(i == 2);
  const auto ahead = feeds_->end(at_).at(1);
  EXPECT_EQ(follower_->wait_end(at_), ahead);
  EXPECT_EQ(ahead, (std::set<std::uint32_t>{0, 1, 2}));
  expect_same(ahead);
  EXPECT_EQ(failures_, 0);
  EXPECT_GT(bytes_, 0u);
}

INSTANTIATE_TEST_SUITE_P(models, each_kind,
                         ::testing::Values(std::pair("gpt", "adamw"), std::pair("gpt", "sgd"),
                                           std::pair("resnet", "adamw"), std::pair("resnet", "sgd")),
                         [](const auto& x) { return std::string(x.param.first) + "_" + x.param.second; });

// given: the stop comes between a layer's base and its first gradient / expected: it is there, at the base's version;
// layers that had not begun are not
TEST_F(followed, ends_behind_a_base) {
  std::promise<void> sent;
  of_source_.on_fault_point = [&](const fault_point& x) {
    if (x.phase == std::string("feed_base"))
      sent.set_value();
  };
  begin(trained_by("gpt", "adamw"));
  follow();
  feeds_->applied(held_, at_);
  sent.get_future().wait();
  const auto ahead = feeds_->end(at_).at(1);
  EXPECT_EQ(follower_->wait_end(at_), ahead);
  EXPECT_EQ(ahead, (std::set<std::uint32_t>{0}));
  expect_same(ahead);
}

// given: the stop comes when the first part of a layer is on its way / expected: the others are not sent; it is not
// there
TEST_F(followed, ends_in_a_base) {
  auto job = small_job_of("mlp");
  job.model = {"mlp", 3, 2048, 1, 16, 2048, 0, false};
  begin(job);
  ASSERT_GE(held_.at(0).parameters.nbytes(), std::size_t{16} << 20) << "sockets take some";
  feeds_->applied(held_, at_);
  while (!copied_[0])
    std::this_thread::yield();
  const auto ahead = feeds_->end(at_).at(1);
  EXPECT_EQ(ahead, (std::set<std::uint32_t>{}));
  std::atomic<int> parts = 0;
  of_destination_.on_fault_point = [&](const fault_point& x) { parts += x.phase == std::string("follow_base"); };
  follow();
  EXPECT_EQ(follower_->wait_end(at_), ahead);
  feeds_->wait_sent();
  EXPECT_LE(parts, 1); // none if it had not begun
  EXPECT_EQ(failures_, 0);
}

// given: a step that is over before a layer is copied / expected: it waits for no more than a piece of it, nothing of
// that copy is used, and another one is when the next step takes longer
TEST_F(followed, a_copy_that_was_cut_off_begins_anew) {
  auto job = small_job_of("mlp");
  job.model = {"mlp", 3, 2048, 1, 16, 2048, 0, false};
  std::atomic<int> copies = 0, begun = 0, decided = 0;
  of_source_.on_fault_point = [&](const fault_point& x) {
    see(x);
    if (x.phase == std::string("feed_copy_begins") && ++begun <= 3)
      while (decided < begun)
        std::this_thread::sleep_for(1ms);
    copies += x.phase == std::string("feed_copy");
  };
  begin(job);
  ASSERT_GE(held_.at(0).parameters.nbytes(), std::size_t{16} << 20) << "the first one takes longer than these steps";
  follow();
  for (int i = 0; i < 3; ++i) {
    feeds_->applied(held_, at_);
    while (begun <= i)
      std::this_thread::yield();
    ++decided;
    const auto began = std::chrono::steady_clock::now();
    feeds_->decided({at_.steps + 1, trained}, {}, true, {});
    EXPECT_LT(std::chrono::steady_clock::now() - began, 1s);
    for (auto& [layer, state] : held_) {
      state.parameters.add_(1);
      state.at = {at_.steps + 1, trained};
    }
    at_ = {at_.steps + 1, trained};
  }
  ASSERT_EQ(copies, 0);
  auto warm = warm_.get_future();
  feeds_->applied(held_, at_);
  for (int i = 0; i < 100 && warm.wait_for(100ms) != std::future_status::ready; ++i)
    step_in_time();
  ASSERT_EQ(warm.wait_for(0ms), std::future_status::ready);
  step_in_time();
  const auto ahead = feeds_->end(at_).at(1);
  EXPECT_EQ(follower_->wait_end(at_), ahead);
  EXPECT_EQ(ahead, (std::set<std::uint32_t>{0, 1, 2}));
  expect_same(ahead);
  EXPECT_GE(copies, 3);
  EXPECT_EQ(failures_, 0);
}

// given: a destination that reads nothing / expected: no step of the source waits for it, no more than a set of
// gradients is kept for it, and what it follows in the end has the source's bits
TEST_F(followed, a_destination_that_stands_still_holds_nothing_up) {
  auto job = small_job_of("mlp");
  job.model = {"mlp", 3, 1024, 1, 16, 256, 0, false}; // more than sockets take
  std::promise<void> copied;
  of_source_.on_fault_point = [&, done = false](const fault_point& x) mutable {
    if (x.phase == std::string("feed_copy") && !std::exchange(done, true))
      copied.set_value();
  };
  begin(job);
  feeds_->applied(held_, at_);
  copied.get_future().wait();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 6; ++i)
    step();
  EXPECT_LT(std::chrono::steady_clock::now() - began, patience);
  const auto ahead = feeds_->end(at_).at(1);
  EXPECT_LT(ahead.size(), 3u) << "it would have to keep the gradients of six steps";
  follow();
  EXPECT_EQ(follower_->wait_end(at_), ahead);
  expect_same(ahead);
  EXPECT_EQ(failures_, 0);
}

// given: a hook that throws while the destination applies / expected: it says so, once, and waits for nothing
TEST_F(followed, a_destination_that_cannot_apply_says_so) {
  begin(trained_by("gpt", "adamw"));
  of_destination_.on_fault_point = [](const fault_point& x) {
    if (x.phase == std::string("follow"))
      throw std::runtime_error("no memory");
  };
  follow();
  feeds_->applied(held_, at_);
  while (failures_ == 0)
    step_in_time();
  EXPECT_THROW(follower_->wait_end(at_), std::runtime_error);
  EXPECT_EQ(failures_, 1);
}

class behind_a_commit : public followed, public ::testing::WithParamInterface<std::size_t> {};

// given: a source that sends buffers of a layer behind a gradient, whose commit comes after 64 of these notes, or does
// not come / expected: they wait for it and the layer has the last of them; it is refused when there are more
TEST_P(behind_a_commit, no_more_than_64_notes_wait) {
  begin(trained_by("resnet", "sgd"));
  follow();
  std::uint64_t number = 0;
  std::deque<encoded_feed_note> notes;
  std::deque<at::Tensor> payloads;
  std::vector<ticket> sent;
  const auto send = [&](const feed_note& x, std::size_t part, const at::Tensor& payload) {
    const auto& kept = payloads.emplace_back(payload);
    const std::span bytes(static_cast<const std::byte*>(kept.const_data_ptr()), kept.nbytes());
    sent.push_back(ends_[0]->send(1, shard_tag(x.at, x.layer, part), bytes));
  };
  const auto say = [&](const feed_note& x) {
    sent.push_back(ends_[0]->send(1, feed_note_tag(number++), notes.emplace_back(encode(x))));
  };
  const auto& layer = held_.at(0);
  ASSERT_TRUE(layer.buffers.defined());
  const version next{at_.steps + 1, trained};
  const auto parts = layer.parts();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    say({.kind = feed_kind::base, .layer = 0, .at = at_});
    send({.layer = 0, .at = at_}, i, parts[i]);
  }
  say({.kind = feed_kind::gradient, .layer = 0, .at = at_});
  send({.layer = 0, .at = at_}, gradient_part, at::zeros_like(layer.parameters));
  for (std::size_t i = 1; i < GetParam(); ++i) {
    say({.kind = feed_kind::buffers, .layer = 0, .at = next});
    send({.layer = 0, .at = next}, buffers_part, at::full_like(layer.buffers, static_cast<double>(i)));
  }
  if (GetParam() > 64) {
    ASSERT_TRUE(eventually([&] { return failures_ == 1; }));
    EXPECT_THROW(follower_->wait_end(next), communication_error);
  } else {
    say({.kind = feed_kind::commit, .at = next, .skipped = true});
    say({.kind = feed_kind::end, .at = next});
    EXPECT_EQ(follower_->wait_end(next), (std::set<std::uint32_t>{0}));
    EXPECT_TRUE(same_bits(arriving_.at(0).buffers, payloads.back()));
    EXPECT_EQ(failures_, 0);
  }
  for (const auto& x : ends_) // before what is sent goes
    x->abort();
}

INSTANTIATE_TEST_SUITE_P(notes, behind_a_commit, ::testing::Values(64, 65));

// given: the source is gone / expected: who waits for the end of its feed hears of it
TEST_F(followed, the_end_of_a_source_ends_the_wait) {
  begin(trained_by("gpt", "adamw"));
  follow();
  feeds_->applied(held_, at_);
  step();
  ends_[0]->abort();
  EXPECT_THROW(follower_->wait_end(at_), communication_error);
}

} // namespace
} // namespace parcae
