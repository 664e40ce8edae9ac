// What an executor makes of the device of its slot.

#include "gpu/layers/model.hpp"
#include "gpu/plugin/plugins.hpp"
#include "gpu/training/snapshot_feed.hpp"
#include "protocols/model/exported_model.hpp"
#include "protocols/model/model_description.hpp"
#include "runtime/node/device_watch.hpp"
#include "tests/gpu/training/stage_executor_fixture.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/support/names.hpp"
#include "tests/support/slow_stream.hpp"
#include "tests/support/thrown_by.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace parcae::rig {
namespace {

/// A fake device that may be an older one, and of which no stream but the one that computes gets anything done before
/// it is let go.
class held_device final : public device {
public:
  explicit held_device(device& below) : facts_of(below.facts()), below_(below) {}

  const device_facts& facts() const override { return facts_of; }
  device_memory allocate(std::size_t bytes) override { return below_.allocate(bytes); }
  device_memory allocate_pinned(std::size_t bytes) override { return below_.allocate_pinned(bytes); }
  std::unique_ptr<stream> make_stream() override {
    auto x = below_.make_stream();
    give_work(*x, [this] { copies.pass(); });
    return x;
  }
  std::uint64_t peak_bytes() const override { return below_.peak_bytes(); }
  void begin_peak() override { below_.begin_peak(); }
  stream& compute() override { return below_.compute(); }

  device_facts facts_of;
  gate copies;

private:
  device& below_;
};

/// A fake device of which nobody hears that anything it computes is done, before it is opened.
class slow_device final : public device {
public:
  explicit slow_device(device& below) : compute_stream(below.compute()), below_(below) {}

  const device_facts& facts() const override { return below_.facts(); }
  device_memory allocate(std::size_t bytes) override { return below_.allocate(bytes); }
  device_memory allocate_pinned(std::size_t bytes) override { return below_.allocate_pinned(bytes); }
  std::unique_ptr<stream> make_stream() override { return below_.make_stream(); }
  stream& compute() override { return compute_stream; }

  slow_stream compute_stream;

private:
  device& below_;
};

/// The layers of one version, as a keeper gets them.
class received {
public:
  received() : port_(make_data_port("127.0.0.1")) {
    port_->accept_snapshots({1}, secret_key{{5}}, {}, [this](const commit_result&, shard_bytes x) {
      const std::lock_guard lock(mutex_);
      if (x.layer != losses_layer)
        of_[x.at.steps][x.layer] = std::move(x.parts);
    });
  }

  protect ask(std::uint32_t layers) const {
    keeper_share all{{{"keeper", {1}, 0}, "127.0.0.1", port_->port()}, {}};
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      all.layers.push_back(layer);
    return {{1}, {all}, permit_of({{5}}, {"sender", {3}, 0}), false};
  }

  std::map<std::uint32_t, std::vector<std::vector<std::byte>>> at(std::uint64_t steps) const {
    const std::lock_guard lock(mutex_);
    const auto found = of_.find(steps);
    return found == of_.end() ? decltype(found->second){} : found->second;
  }

private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::map<std::uint32_t, std::vector<std::vector<std::byte>>>> of_;
  std::unique_ptr<data_port> port_;
};

class executor_of_slot_device : public stage_executor_test {};

// given: a snapshot at each commit, from a device whose copies to the host stand still / expected: the next step is
// computed meanwhile and not applied; what arrives then is the version that was committed, in every bit
TEST_F(executor_of_slot_device, next_step_is_computed_while_a_snapshot_leaves_the_device) {
  know_fake_devices();
  job.keeper_every = 1;
  held_device held(fake_device(0));
  received late;
  std::atomic<bool> applied = false;
  gate computed;
  worker w("w", {}, &held);
  w.at_fault_points([&](const fault_point& x) {
    if (x.step == 1 && x.phase == std::string_view("exchanged"))
      computed.pass();
    if (x.step == 1 && x.phase == std::string_view("apply"))
      applied = true;
  });
  w.work->submit(late.ask(layers()));
  prepare_and_start(w, plan(1, {&w}));
  ASSERT_TRUE(computed.wait_until_reached()) << "the step waits for the snapshot";
  computed.open();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(applied);
  EXPECT_TRUE(late.at(1).empty());
  held.copies.open();
  ASSERT_TRUE(eventually([&] { return applied && late.at(1).size() == layers(); }));

  received prompt;
  job.steps = 1;
  worker other("other", {}, &fake_device(1));
  other.work->submit(prompt.ask(layers()));
  prepare_and_start(other, plan(1, {&other}));
  ASSERT_TRUE(eventually([&] { return prompt.at(1).size() == layers(); }));
  EXPECT_EQ(late.at(1), prompt.at(1));
}

// given: the same, of a device that may take 8 GiB / expected: that copies at the commit, so the next step is applied
// while nothing has left; what arrives then is the version that was committed, in every bit, its course included
TEST_F(executor_of_slot_device, next_step_is_applied_while_a_snapshot_leaves_a_device_with_room) {
  know_fake_devices();
  job.keeper_every = 1;
  job.patience = 5;
  job.evaluate_every = 2;
  job.data.validation = 8;
  held_device held(fake_device(7));
  received late, prompt;
  std::atomic<int> steps = 0;
  worker w("w", {}, &held, 1, std::uint64_t{8} << 30), other("other", {}, &fake_device(8));
  w.at_fault_points([&](const fault_point& x) {
    if (x.phase == std::string_view("committed"))
      ++steps;
  });
  w.work->submit(late.ask(layers()));
  prepare_and_start(w, plan(1, {&w}));
  EXPECT_TRUE(eventually([&] { return steps >= 3; })) << "a step waits for the snapshot";
  EXPECT_TRUE(late.at(1).empty());
  held.copies.open();
  ASSERT_TRUE(eventually([&] { return late.at(1).size() == layers(); }));

  job.steps = 1;
  other.work->submit(prompt.ask(layers()));
  prepare_and_start(other, plan(1, {&other}));
  ASSERT_TRUE(eventually([&] { return prompt.at(1).size() == layers(); }));
  EXPECT_EQ(late.at(1), prompt.at(1));
}

// given: what a slot may take, has taken, may be sent, and a copy would take / expected: there is room for the copy
// where an eighth stays free
TEST(slot_device, has_room_for_a_copy_besides_all_else) {
  EXPECT_TRUE(has_room_for_copy(800, 300, 200, 200));
  EXPECT_FALSE(has_room_for_copy(800, 300, 200, 201));
  EXPECT_FALSE(has_room_for_copy(800, 301, 200, 200));
  EXPECT_FALSE(has_room_for_copy(800, 300, 201, 200));
  EXPECT_FALSE(has_room_for_copy(0, 0, 0, 0)) << "nobody knows";
}

// given: a device that is slower than who gives it work / expected: that is two passes ahead of the one at which the
// device is, and no more; ABORT is answered when the device is done
TEST_F(executor_of_slot_device, little_is_given_ahead_and_an_abort_waits_for_it) {
  know_fake_devices();
  slow_device slow(fake_device(4));
  worker w("w", {}, &slow);
  std::mutex mutex;
  std::set<std::pair<std::string, std::uint32_t>> passes;
  w.at_fault_points([&](const fault_point& x) {
    const std::lock_guard held(mutex);
    if (x.phase == std::string_view("forward") || x.phase == std::string_view("backward"))
      passes.emplace(x.phase, x.index);
  });
  const auto begun = [&] {
    const std::lock_guard held(mutex);
    return passes.size();
  };
  const auto x = plan(1, {&w});
  prepare_and_start(w, x);
  EXPECT_TRUE(eventually([&] { return begun() == 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(begun(), 3u);
  w.work->submit(abort_generation{x.next});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  {
    const std::lock_guard held(w.said.mutex);
    EXPECT_TRUE(w.said.queue.empty()) << "it cannot know that it has aborted";
  }
  slow.compute_stream.open = true;
  EXPECT_EQ(w.said.next<aborted>().complete, no_step);
  EXPECT_EQ(begun(), 3u);
}

// given: nobody hears that the last pass of a step is done, so what the commit exchange needs of it does not come /
// expected: ABORT is answered within two seconds, since nobody waits for the device without a limit
TEST_F(executor_of_slot_device, an_abort_is_heard_while_the_device_computes_what_is_exchanged) {
  know_fake_devices();
  slow_device slow(fake_device(5));
  slow.compute_stream.open = true;
  worker w("w", {}, &slow);
  std::atomic<bool> last = false;
  w.at_fault_points([&](const fault_point& x) {
    if (x.phase == std::string_view("backward") && x.index + 1 == job.micro_batches()) {
      slow.compute_stream.open = false;
      last = true;
    }
  });
  const auto x = plan(1, {&w});
  prepare_and_start(w, x);
  ASSERT_TRUE(eventually([&] { return last.load(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto began = std::chrono::steady_clock::now();
  w.work->submit(abort_generation{x.next});
  const auto answer = w.said.next<aborted>();
  EXPECT_EQ(answer.at.steps, 0u);
  EXPECT_EQ(answer.complete, no_step);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
  slow.compute_stream.open = true; // which its end waits for
}

// given: a generation's first call to a device takes 2.5 s, in which it is aborted, on a node that watches its device /
// expected: ABORTED when the call has returned, and the device is not given up
TEST_F(executor_of_slot_device, a_slow_first_call_loses_no_device) {
  know_fake_devices();
  gate call;
  executor_reports said;
  const auto port = make_data_port("127.0.0.1");
  executor_options options;
  options.self = {"w", {1}, 0};
  options.on = &fake_device(9);
  options.report_to = [&](report x) { said(std::move(x)); };
  options.on_fault_point = [&](const fault_point& x) {
    if (x.step == 0 && x.index == 0 && x.phase == std::string_view("forward")) {
      call.pass();
      std::this_thread::sleep_for(std::chrono::milliseconds(2'500));
    }
  };
  const auto work = make_watched_executor(
      options, [&](executor_options x) { return make_stage_executor(std::move(x), *port); },
      [](const std::string& why) { ADD_FAILURE() << why; });
  auto x = plan(1, {});
  x.target.participants.push_back({options.self, "127.0.0.1", port->port()});
  work->submit(x);
  said.next<prepared>();
  work->submit(activate{x.next, {}});
  EXPECT_TRUE(call.wait_until_reached());
  work->submit(abort_generation{x.next});
  call.open();
  EXPECT_EQ(said.next<aborted>().at.steps, 0u);
}

// given: a job in bfloat16, and a slot whose device does not multiply in it / expected: LOAD fails, and says what is
// needed
TEST_F(executor_of_slot_device, bfloat16_needs_a_device_that_has_it) {
  know_fake_devices();
  held_device old(fake_device(2));
  old.facts_of.has_bfloat16 = false;
  old.facts_of.computes_as = "Tesla T4 sm_75";
  worker w("w", {}, &old), v("v", {}, &old);
  v.work->submit(load{{1}, job});
  EXPECT_EQ(v.said.next<loaded>().job, (job_id{1}));
  job.precision = "bfloat16";
  w.work->submit(load{{2}, job});
  const auto answer = w.said.next<failed>();
  EXPECT_EQ(answer.kind, failure::data);
  EXPECT_EQ(answer.what, "precision \"bfloat16\" needs a GPU that multiplies in it, from sm_80 on; this is "
                         "Tesla T4 sm_75");
}

// given: two slots on one device, whose attention drops by numbers of the device's one generator / expected: each has
// the bits that it has alone, and the generator is as it was
TEST(slot_device, slots_of_one_device_draw_their_own_numbers) {
  know_fake_devices();
  const tensor_device on(fake_device(6));
  const model_specification model{
      .kind = "gpt", .layers = 1, .width = 16, .heads = 2, .sequence = 16, .vocabulary = 50, .dropout = 0.3};
  const auto description = describe(model);
  const auto layers = make_layers(model, on);
  const auto parameters = views_of(description.layers[1], initial_parameters(description, 1, 1, on));
  const auto input = at::arange(2 * 16 * 16, at::kFloat).sin_().reshape({2, 16, 16}).to(on.place());
  const auto outputs = [&](std::uint64_t step) {
    std::vector<at::Tensor> all;
    for (std::uint32_t i = 0; i < 30; ++i)
      all.push_back(layers[1]->forward(parameters, input, {.position = {1, step, i}, .on = on}).to(at::kCPU));
    return all;
  };
  const auto agree = [](const auto& x, const auto& y) {
    return std::ranges::equal(x, y, [](const auto& a, const auto& b) { return at::equal(a, b); });
  };
  const auto numbers = at::globalContext().defaultGenerator(on.place());
  const auto before = numbers.get_state();
  const auto first = outputs(1), second = outputs(2);
  EXPECT_FALSE(agree(first, second));
  auto other = std::async(std::launch::async, [&] { return outputs(2); });
  EXPECT_TRUE(agree(outputs(1), first));
  EXPECT_TRUE(agree(other.get(), second));
  EXPECT_TRUE(at::equal(numbers.get_state(), before));
}

// given: a plug-in's layer that drops by LibTorch's own dropout, whose numbers are of the slot's device / expected: it
// is refused there as on the processor
TEST(slot_device, layers_that_draw_from_its_generator_are_refused) {
  know_fake_devices();
  model_specification model{.kind = "plugin", .path = "bad.json"};
  take_described_plugin(model, describe_plugin_model(open_plugin(PARCAE_BAD_LAYERS), "random", {}));
  const auto why = HasSubstr("bad.json, layer 1 (bad) in training: draws from PyTorch's own generator");
  EXPECT_THAT(thrown_by<exported_model_error>([&] { try_own_model(model, tensor_device(fake_device(6))); }), why);
  EXPECT_THAT(thrown_by<exported_model_error>([&] { try_own_model(model); }), why);
}

// given: a slot on a device / expected: what its progress says of memory is the device's, state, gradients and all
TEST_F(executor_of_slot_device, memory_is_that_of_the_device) {
  know_fake_devices();
  auto& on = fake_device(3);
  worker w("w", {}, &on);
  prepare_and_start(w, plan(1, {&w}));
  const auto said = w.said.next<progress>();
  const auto reported = said.peak_bytes;
  EXPECT_GT(said.reserved_bytes, reported) << "what is kept is beside it, not in it";
  EXPECT_LE(said.reserved_bytes, on.peak_reserved_bytes());
  std::uint64_t state = 0;
  for (const auto& layer : describe(job.model).layers)
    state += 3 * sizeof(float) * layer.parameters();
  EXPECT_GT(reported, state);
  EXPECT_LE(reported, on.peak_bytes());
  EXPECT_LT(reported, 100 * state) << "of pages that were given back";
}

} // namespace
} // namespace parcae::rig
