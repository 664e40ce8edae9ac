// Where the time of steps goes, as a user asks for it.

#include "tests/support/cluster.hpp"
#include "tests/support/trace_events.hpp"

#include <fstream>
#include <iterator>

namespace parcae {
namespace {

struct step_time : cluster_test {
  /// Two pipelines of two stages, for ever.
  std::uint64_t train() {
    for (const auto* name : {"a", "b", "c", "d"})
      cluster->start_node(name);
    cluster->start_keeper();
    wait_for_workers(4);
    auto job = small_job(1'000'000);
    job.min_depth = job.max_depth = 2;
    job.min_width = job.max_width = 2;
    const auto id = cluster->client().submit(job);
    wait_for_training(id, 4);
    return id;
  }

  std::string file() const { return (folder.path() / "trace.json").string(); }

  trace_events traced() const {
    std::ifstream in(file());
    return checked_trace_events({std::istreambuf_iterator<char>(in), {}});
  }
};

// given: a job of two pipelines of two stages / expected: a file of trace events with a row for each slot and as many
// steps of it as were asked for, flows of each micro-batch of steps that both stages told of; and it goes on training
TEST_F(step_time, steps_are_traced) {
  const auto id = train();
  const auto told = run({"trace", std::to_string(id), "--steps", "6", "--output", file()});
  ASSERT_EQ(told.status, 0) << told.error;
  EXPECT_THAT(told.error, HasSubstr("of 4 slots; open it at"));
  const auto x = traced();
  std::vector<std::string> slots;
  for (const auto& [where, name] : x.names)
    slots.push_back(name.substr(name.find(": ") + 2));
  EXPECT_THAT(slots, UnorderedElementsAre("a/0", "b/0", "c/0", "d/0"));
  ASSERT_EQ(x.slices.size(), 4u);
  for (const auto& [where, all] : x.slices) {
    EXPECT_EQ(std::ranges::count_if(all, [](const auto& s) { return s.name.starts_with("step "); }), 6);
    double steps = 0, parts = 0;
    for (const auto& s : all)
      (s.name.starts_with("step ") ? steps : parts) += static_cast<double>(s.to - s.from);
    EXPECT_NEAR(parts, steps, 0.02 * steps);
    EXPECT_GT(x.ms_of(where, "forward"), 0);
    EXPECT_GT(x.ms_of(where, "optimizer"), 0);
  }
  // Four micro-batches of each pipeline. Ranks begin to tell a step apart, or two.
  EXPECT_THAT(x.flows, UnorderedElementsAre(Pair("activation", testing::Gt(0)), Pair("gradient", testing::Gt(0))));
  const auto done = job_of(cluster->client().status(), id).steps_done;
  wait_for_job(id, "more steps", [&](const job_status& j) { return j.steps_done > done + 5; });
}

// given: the same / expected: `status` has the parts of each slot's steps, names the slowest, and shows their shares
TEST_F(step_time, status_tells_where_it_goes) {
  const auto id = train();
  const auto job = wait_for_job(id, "times of all slots", [](const job_status& j) { return j.step_times.size() == 4; });
  std::vector<std::string> slots;
  for (const auto& x : job.step_times) {
    slots.push_back(x.slot);
    for (const auto part : {step_part::forward, step_part::backward, step_part::reduction, step_part::exchange})
      EXPECT_GT(part_of(x, part), 0);
  }
  EXPECT_EQ(slots, job.grid);
  EXPECT_THAT(slots, testing::Contains(job.slowest_slot));
  EXPECT_THAT(run({"status", std::to_string(id)}).output,
              testing::AllOf(HasSubstr("ms: 4 slots, slowest "), HasSubstr("    forward "), HasSubstr(" % of ")));
}

// given: a job that is not there, one that waits, a file that cannot be written, too many steps / expected: one line
TEST_F(step_time, what_cannot_be_traced_is_said) {
  EXPECT_THAT(run({"trace", "7", "--output", file()}).error, HasSubstr("no such job: 7"));
  const auto waits = cluster->client().submit(small_job(10));
  const auto none = run({"trace", std::to_string(waits), "--output", file()});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.error, HasSubstr("does not train"));
  EXPECT_EQ(run({"trace", std::to_string(waits), "--steps", "101", "--output", file()}).status, 2);
}

// given: `parcae profile --stalls`, for a job whose samples are made up, with a link / expected: tables, and why
// nothing is read; wrong usage in one line
TEST_F(step_time, stalls_are_told_to_people) {
  const auto file =
      write("job.toml", "[job]\nname = \"stalls\"\nsteps = 10\n[model]\nlayers = 3\nwidth = 32\nsequence = 16\n"
                        "[batch]\nglobal = 8\nmicro = 2\n[data]\nkind = \"synthetic\"\n");
  const auto x = run({"profile", file, "--stalls", "--link", "100Mb/s", "--duration", "100ms"}, false);
  ASSERT_EQ(x.status, 0) << x.error;
  EXPECT_THAT(x.output, HasSubstr("all slots on one host, samples made up: ms of a step\n"));
  EXPECT_THAT(x.output, HasSubstr("each slot behind a link of 100 Mb/s, samples made up: ms of a step\n"));
  EXPECT_THAT(x.error, HasSubstr("measuring 2×2 as if over hosts, samples made up"));
  for (const auto* stall : {"interconnect 2×1 ", "interconnect 2×2 ", "network      2×1 ", "network      2×2 "})
    EXPECT_THAT(x.output, HasSubstr(std::string("\n  ") + stall));
  EXPECT_THAT(x.output, HasSubstr("there is nothing to read, cached or cold\n"));
  EXPECT_THAT(run({"profile", file, "--stalls", "--link", "fast"}, false).error, HasSubstr("must be like"));
  EXPECT_EQ(run({"profile", file, "--link", "1Gb/s"}, false).status, 2);
  EXPECT_THAT(run({"profile", file}, false).error, HasSubstr("--output or --stalls is required"));
}

} // namespace
} // namespace parcae
