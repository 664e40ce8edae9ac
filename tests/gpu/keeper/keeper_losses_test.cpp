// What a keeper knows of the job's steps: with snapshots, by REMEMBER, from a checkpoint; and what it makes of that.

#include "gpu/checkpoint/losses.hpp"
#include "gpu/keeper/checkpoint_store.hpp"
#include "gpu/keeper/keeper_machine.hpp"
#include "tests/gpu/keeper/checkpoint_folder.hpp"
#include "tests/support/names.hpp"

#include <future>

namespace parcae::losses_of_keeper {
namespace {

constexpr job_id the_job{1};

loss_block steps(std::uint64_t first, std::uint64_t count, double more = 0) {
  loss_block x{first, 0, {}};
  for (auto step = first; step < first + count; ++step)
    x.all.push_back({1 / static_cast<double>(step + 1) + more, 2, 3, {}, 1'000 + static_cast<std::int64_t>(step)});
  return x;
}

loss_record known(std::uint64_t count) {
  loss_record result;
  for (std::uint64_t first = 0; first < count; first += loss_block_steps)
    result.put(steps(first, std::min(loss_block_steps, count - first)));
  return result;
}

void expect_same(const loss_record& a, const loss_record& b) {
  ASSERT_EQ(a.steps(), b.steps());
  for (std::uint64_t step = 0; step < a.steps(); ++step)
    ASSERT_TRUE(a.find(step) && b.find(step) && a.find(step)->same(*b.find(step))) << step;
}

struct keeper {
  keeper() { m.take(guard{the_job, {{1}}, {5}, specification()}); }

  static job_specification specification() {
    job_specification x;
    x.model = {.kind = "mlp", .layers = 1, .width = 5, .vocabulary = 5};
    x.steps = 100'000;
    return x;
  }

  /// As with a snapshot of that version.
  void receive(const loss_record& all, std::uint64_t from, const version& at) {
    for (const auto& shard : shards_of(all, from, at))
      EXPECT_THAT(m.arrived(the_job, shard, {}), IsEmpty());
  }

  loss_block recalled_from(std::uint64_t from, job_id of = the_job) {
    for (const auto& x : m.take(recall{of, from}))
      if (const auto* said = std::get_if<keeper_effects::say>(&x))
        if (const auto* answer = std::get_if<recalled>(&said->what))
          return answer->losses.empty() ? loss_block{} : decode_loss_block(answer->losses);
    ADD_FAILURE() << "RECALL is not answered";
    return {};
  }

  keeper_machine m{{"k", 0}, true};
};

// given: losses with snapshots and by REMEMBER, some twice / expected: said when asked, with ABORTED what is lacking;
// gone with the job
TEST(keeper_losses, are_recalled) {
  keeper k;
  EXPECT_THAT(k.recalled_from(0).all, IsEmpty());
  const auto all = known(9000);
  k.receive(all, 5000, {9000, {5}});
  EXPECT_EQ(k.recalled_from(0).first, 5000u);
  k.m.take(remember{the_job, encode(all.part(0))});
  k.m.take(remember{the_job, encode(all.part(4096))});
  expect_same(k.m.losses(), all);
  EXPECT_EQ(k.recalled_from(100).all.size(), loss_block_steps);
  EXPECT_THAT(k.recalled_from(0, {2}).all, IsEmpty());
  const auto effects = k.m.take(abort_generation{{}, 8990});
  const auto& answer = std::get<aborted>(std::get<keeper_effects::say>(effects.at(0)).what);
  EXPECT_EQ(decode_loss_block(answer.losses).first, 8990u);
  EXPECT_EQ(decode_loss_block(answer.losses).end(), 9000u);
  k.m.take(forget{the_job});
  k.m.take(guard{the_job, {{1}}, {5}, keeper::specification()});
  EXPECT_THAT(k.recalled_from(0).all, IsEmpty());
}

// given: a version that was evaluated behind its snapshot, then the next snapshot / expected: the keeper knows what
// came of it, and says so to who knows of the step
TEST(keeper_losses, have_evaluations) {
  keeper k;
  auto all = known(10);
  k.receive(all, 0, {10, {5}});
  all.evaluate(9, 0.5);
  all.put(steps(10, 5));
  k.receive(all, 10, {15, {5}});
  expect_same(k.m.losses(), all);
  EXPECT_EQ(k.recalled_from(10).first, 9u);
  EXPECT_EQ(k.recalled_from(11).first, 11u);
  const auto effects = k.m.take(abort_generation{{}, 10});
  const auto& answer = std::get<aborted>(std::get<keeper_effects::say>(effects.at(0)).what);
  EXPECT_EQ(decode_loss_block(answer.losses).first, 9u);
}

// given: shards that say to be losses / expected: only blocks that can be are let in
TEST(keeper_losses, are_admitted) {
  const snapshot_admission admission(keeper::specification(), {5});
  const version at{3, {5}};
  EXPECT_EQ(admission.problem_of(losses_layer, at, {loss_block_limit_bytes}), "");
  for (const auto& sizes : {std::vector<std::uint64_t>{loss_block_limit_bytes + 1}, {}, {10, 10}})
    EXPECT_THAT(admission.problem_of(losses_layer, at, sizes), HasSubstr("is not one of the model"));
  EXPECT_THAT(admission.problem_of(losses_layer, {3, {6}}, {48}), HasSubstr("not heard of yet"));
  keeper k;
  const auto shard = std::make_shared<const shard_bytes>(shard_bytes{losses_layer, at, {std::vector<std::byte>(60)}});
  EXPECT_THROW(k.m.arrived(the_job, shard, {}), std::runtime_error);
}

// --- on disk

struct losses_folder_test : checkpoint_folder_test {
  checkpointed write(checkpoint_store& to, std::uint64_t at, const loss_record& losses) {
    std::promise<checkpointed> answer;
    auto of = job();
    of.global_batch = 32;
    to.write(
        {the_job, {at, {1}}, "text-1/" + std::to_string(at) + "@1", of, "digest", {}}, {shard_of(1, {at, {1}})}, {},
        [&](checkpointed x) { answer.set_value(std::move(x)); }, losses);
    return answer.get_future().get();
  }

  /// What a keeper that has nothing of its own reads with the checkpoint.
  loss_record read(const std::string& from, std::uint64_t at) {
    checkpoint_store fresh(folder / "fresh", "other");
    loss_record result;
    std::promise<void> done;
    fresh.read(
        {the_job, {at, {0}}, from, job()},
        [&](const commit_result&, const shard_bytes& x) {
          if (x.layer == losses_layer)
            result.put(losses_in(x));
        },
        [&](const restored& x) {
          EXPECT_EQ(x.problem, "");
          done.set_value();
        });
    done.get_future().get();
    return result;
  }

  std::filesystem::path block(std::uint64_t first) const {
    return folder / "text-1" / losses_folder / name_of_loss_block(first);
  }
};

// given: checkpoints of one run, of which older ones are deleted / expected: the losses stay; each checkpoint is read
// with those of the steps before it
TEST_F(losses_folder_test, are_beside_the_checkpoints) {
  checkpoint_store store(folder, "k");
  EXPECT_EQ(write(store, 5000, known(5000)).problem, "");
  EXPECT_EQ(write(store, 10'000, known(10'000)).problem, "");
  EXPECT_FALSE(std::filesystem::exists(folder / "text-1/5000@1"));
  expect_same(read_losses(*place(folder / "text-1")).known, known(10'000));
  EXPECT_EQ(read_losses(*place(folder / "text-1")).samples, 32u);
  expect_same(read(folder / "text-1/10000@1", 10'000), known(10'000));
  expect_same(read_losses(*place(folder / "text-1"), 4000).known, known(4000));
  EXPECT_THAT(find_checkpoint(place(folder / "text-1"))->place(), HasSubstr("10000@1"));
  remove_losses(*place(folder / "text-1"));
  EXPECT_FALSE(std::filesystem::exists(folder / "text-1" / losses_folder));
}

// given: a keeper that began anew and knows the newest steps only / expected: what is on disk of the others stays
TEST_F(losses_folder_test, of_which_it_knows_less_stay) {
  {
    checkpoint_store store(folder, "k");
    write(store, 6000, known(6000));
  }
  checkpoint_store again(folder, "k");
  loss_record newest;
  newest.put(known(7000).part(5500));
  write(again, 7000, newest);
  expect_same(read_losses(*place(folder / "text-1")).known, known(7000));
}

// given: blocks that are damaged, cut short, too long, of other steps, of no name / expected: left out, and named; the
// checkpoint is read all the same
TEST_F(losses_folder_test, that_are_damaged_are_left_out) {
  checkpoint_store store(folder, "k");
  write(store, 9000, known(9000));
  const auto good = content(block(4096));
  put(folder / "text-1" / losses_folder / "notes", "by somebody");
  auto flipped = good;
  flipped[100] ^= 1;
  for (const auto& bad : {flipped, good.substr(0, good.size() - 1), good + std::string(200'000, 'x'), std::string()}) {
    put(block(4096), bad);
    const auto found = read_losses(*place(folder / "text-1"));
    EXPECT_THAT(found.problem, HasSubstr(name_of_loss_block(4096)));
    EXPECT_EQ(found.known.first_known(4096), 8192u);
    EXPECT_TRUE(found.known.find(4095));
    EXPECT_EQ(read(folder / "text-1/9000@1", 9000).first_known(4096), 8192u);
  }
  put(block(4096), good);
  put(block(0), good);
  EXPECT_THAT(read_losses(*place(folder / "text-1")).problem, HasSubstr("other steps"));
}

// given: a place for losses that is none / expected: the checkpoint is not called good, and says why
TEST_F(losses_folder_test, that_cannot_be_written_are_a_problem) {
  checkpoint_store store(folder, "k");
  std::filesystem::create_directories(folder / "text-1");
  put(folder / "text-1" / losses_folder, "a file");
  const auto answer = write(store, 10, known(10));
  EXPECT_THAT(answer.problem, HasSubstr("losses"));
  EXPECT_THAT(answer.layers, IsEmpty());
}

} // namespace
} // namespace parcae::losses_of_keeper
