// What status shows of a job: its course, what is idle, what is on no disk.

#include "actors/manager/link_report.hpp"
#include "actors/manager/status.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

// given: a job on some of the slots that there are / expected: why the others are idle, or nothing
TEST(idle_reason, table) {
  job_specification job;
  job.virtual_replicas = 2;
  job_status x;
  x.phase = "running";
  x.layers = 6;
  const auto workers = [](std::uint32_t like, std::uint32_t other) {
    std::vector<instance_status> result;
    for (std::uint32_t i = 0; i < like + other; ++i) {
      result.emplace_back();
      result.back().name = "w" + std::to_string(i);
      result.back().role = "worker";
      result.back().state = "alive";
      result.back().slots = 1;
      result.back().processor = i < like ? "x" : "y";
    }
    return result;
  };
  const auto on = [&](std::uint32_t width, std::uint32_t depth) {
    x.width = width;
    x.depth = depth;
    x.grid.assign(width * depth, "w0/0");
    x.grid_incarnations.assign(width * depth, {});
    return x;
  };
  EXPECT_EQ(idle_reason(job, on(2, 1), {}, workers(2, 0)), "");
  EXPECT_EQ(idle_reason(job, on(2, 1), {}, workers(3, 0)),
            "1 slot idle: parallel.virtual_replicas = 2 allows no more pipelines, and more stages promise less");
  EXPECT_EQ(idle_reason(job, on(1, 3), {}, workers(4, 0)), "1 slot idle: too few for another pipeline of 3 stages");
  EXPECT_EQ(idle_reason(job, on(1, 1), {}, workers(2, 1)),
            "1 slot idle: the plan promises more samples without them; 1 "
            "slot idle: another processor would compute other bits");
  auto service = job;
  service.kind = "serve";
  service.max_width = 4;
  EXPECT_EQ(idle_reason(service, on(2, 1), {}, workers(3, 0)),
            "1 slot idle: requests are answered as soon without them");
  x.phase = "readying";
  EXPECT_EQ(idle_reason(job, x, {}, workers(4, 0)), "");
  const unused_slot differs{{"w2", {}, 0}, "other data"}, alike{{"w3", {}, 0}, "other data"},
      loads{{"w1", {}, 0}, "it loads"};
  EXPECT_EQ(idle_reason(job, x, {differs}, workers(4, 0)), "w2/0 idle: other data") << "also while it changes";
  EXPECT_EQ(idle_reason(job, on(0, 0), {differs}, workers(4, 0)), "w2/0 idle: other data") << "and while it waits";
  x.phase = "running";
  EXPECT_EQ(idle_reason(job, on(1, 1), {loads, differs, alike}, workers(4, 0)),
            "w1/0 idle: it loads; w2/0, w3/0 idle: other data");
  EXPECT_EQ(idle_reason(job, on(1, 3), {differs}, workers(5, 0)),
            "w2/0 idle: other data; 1 slot idle: too few for another pipeline of 3 stages");
}

// given: jobs by their age, steps, and what is on disk / expected: a warning where that is nothing for twice as long as
// it may be, or until the end
TEST(why_not_on_disk, table) {
  job_specification job;
  job_view x;
  const time_point start(1h);
  EXPECT_EQ(why_not_on_disk(job, x, start + 24h), "") << "it has not begun";
  x.changes.emplace_back().at_us = microseconds_of(start);
  EXPECT_EQ(why_not_on_disk(job, x, start), "nothing is on disk before the job ends: job.checkpoint_every is 0");
  job.checkpoint_every_ms = 30 * 60'000;
  EXPECT_EQ(why_not_on_disk(job, x, start + 59min), "");
  EXPECT_EQ(why_not_on_disk(job, x, start + 1h), "no checkpoint is on disk, though one was due after 30m");
  job.checkpoint_every_ms = 0;
  job.checkpoint_every = 100;
  x.steps_done = 199;
  EXPECT_EQ(why_not_on_disk(job, x, start + 1h), "");
  x.steps_done = 200;
  EXPECT_EQ(why_not_on_disk(job, x, start + 59s), "") << "steps may be fast";
  EXPECT_EQ(why_not_on_disk(job, x, start + 60s), "no checkpoint is on disk, though one was due at step 100");
  x.checkpoint = {100, {1}};
  EXPECT_EQ(why_not_on_disk(job, x, start + 1h), "");
}

job_picture sample_picture() {
  auto view = std::make_shared<job_view>();
  view->now = phase::running;
  view->current = {3};
  view->grid = placement{1, 2, {0, 1, 2}, {{{"a", {1}, 0}, "h", 1}, {{"b", {1}, 0}, "h", 1}, {{"c", {1}, 0}, "h", 1}}};
  view->steps_done = 12;
  view->step_ms = 50;
  view->migrations = {.none = 1, .pipeline = 4};
  view->change_count = 5;
  view->changes.resize(3);
  for (std::uint64_t i = 0; i < 3; ++i)
    view->changes[i].number = 2 + i;
  view->changes.back().trigger = "join";
  auto lines = std::make_shared<std::deque<logged_event>>();
  lines->push_back({time_point(milliseconds(5)), severity::information, "x"});
  lines->push_back({time_point(milliseconds(6)), severity::error, "y"});
  return {view, 10, lines};
}

// given: a picture of a running job / expected: ranks only in the grid, changes and events with their numbers
TEST(status, shows_a_running_job) {
  job_entry entry;
  entry.state = job_state::running;
  entry.specification.global_batch = 10;
  entry.specification.planning_interval_ms = 60'000;
  auto x = status_of({7}, entry, sample_picture(), {});
  EXPECT_EQ(x.id, 7u);
  EXPECT_EQ(x.state, "running");
  EXPECT_EQ(x.phase, "running");
  EXPECT_THAT(x.grid, ElementsAre("a/0", "b/0"));
  EXPECT_DOUBLE_EQ(x.samples_per_s, 200);
  EXPECT_EQ(x.global_batch, 10u);
  EXPECT_EQ(x.planning_interval_ms, 60'000u);
  EXPECT_EQ(x.change_count, 5u);
  ASSERT_EQ(x.changes.size(), 3u);
  EXPECT_EQ(x.changes.back().number, 4u);
  EXPECT_EQ(x.changes.back().trigger, "join");
  EXPECT_EQ(x.event_count, 12u);
  ASSERT_EQ(x.events.size(), 2u);
  EXPECT_EQ(x.events[1].number, 11u);
  EXPECT_EQ(x.events[1].level, "error");
  EXPECT_EQ(x.events[1].at_us, 6000);
}

// given: two pipelines of two stages on two machines, the first with two slots of one process; what the ranks say /
// expected: of each kind of links what moves it, where they are, and why it is no better
TEST(status, names_the_transport_of_each_kind_of_link) {
  const auto at = [](const char* name, std::uint32_t index, const char* host) {
    return participant{{name, {1}, index}, host, 1};
  };
  placement grid{2, 2, {0, 1, 2}, {at("a", 0, "h"), at("a", 1, "h"), at("b", 0, "h"), at("c", 0, "i")}};
  const std::string activations = "1 link between slots of one process, 1 between machines",
                    sums = "1 link between processes of one machine, 1 between machines",
                    all = "1 link between slots of one process, 2 between processes of one machine, 3 between machines";
  struct row {
    transport_state said;
    std::string wanted, by, why;
  };
  const row table[] = {
      {{"tcp", "cpu", {}}, "auto", "tcp", ""},
      {{"tcp", "H200", {}}, "auto", "tcp", "NCCL is not asked for (job.transport is auto)"},
      {{"tcp", "H200", {}}, "nccl", "tcp", "NCCL is not yet made"},
      {{"tcp", "H200", "a/0: too late"}, "nccl", "tcp", "a/0: too late"},
      {{"nccl", "H200", {}}, "nccl", "nccl", ""},
  };
  for (const auto& x : table) {
    const auto with = [&](const std::string& places) { return x.why.empty() ? "" : places + "; " + x.why; };
    EXPECT_THAT(links_of(grid, x.said, x.wanted),
                ElementsAre(link_status{"activations", x.by, with(activations)},
                            link_status{"all-reduce", x.by, with(sums)},
                            link_status{"shards", "tcp",
                                        x.said.device == "cpu" ? "" : all + "; they move before NCCL is made"}));
  }
  EXPECT_THAT(links_of(grid, {}, "auto"), IsEmpty()) << "nobody has said";
  grid.width = 1;
  EXPECT_THAT(links_of(grid, table[0].said, "auto"),
              ElementsAre(link_status{"activations", "tcp", {}}, link_status{"shards", "tcp", {}}));
  grid.depth = 1;
  EXPECT_THAT(links_of(grid, table[0].said, "auto"), IsEmpty()) << "one slot";
}

// given: two slots of one process, and a third elsewhere; how those of one process copy / expected: kinds of links that
// are all within it are copies, with what is wrong with these; of others it is said which are
TEST(status, names_what_copies_from_gpu_to_gpu) {
  const auto at = [](const char* name, std::uint32_t index) { return participant{{name, {1}, index}, "h", 1}; };
  const placement two{1, 2, {0, 1, 2}, {at("a", 0), at("a", 1)}},
      three{1, 3, {0, 1, 2, 3}, {at("a", 0), at("a", 1), at("b", 0)}};
  const auto said = [](const char* by, peer_copies x) { return transport_state{by, "H200", {}, std::move(x)}; };
  EXPECT_THAT(links_of(two, said("tcp", {true, {}}), "auto"),
              ElementsAre(link_status{"activations", "peer", {}}, link_status{"shards", "peer", {}}));
  const std::string within = "1 link between slots of one process; ", slow = "a/0: the driver takes the host's memory";
  EXPECT_THAT(
      links_of(two, said("tcp", {true, slow}), "auto"),
      ElementsAre(link_status{"activations", "peer", within + slow}, link_status{"shards", "peer", within + slow}));
  const std::string unasked = "NCCL is not asked for (job.transport is auto)", early = "they move before NCCL is made",
                    wrong = "; within a process: a/0: other bits";
  EXPECT_THAT(links_of(two, said("tcp", {false, "a/0: other bits"}), "auto"),
              ElementsAre(link_status{"activations", "tcp", within + unasked + wrong},
                          link_status{"shards", "tcp", within + early + wrong}));
  const std::string some = "1 link between slots of one process (copied from GPU to GPU), ";
  EXPECT_THAT(links_of(three, said("tcp", {true, {}}), "auto"),
              ElementsAre(link_status{"activations", "tcp", some + "1 between processes of one machine; " + unasked},
                          link_status{"shards", "tcp", some + "2 between processes of one machine; " + early}));
  EXPECT_THAT(links_of(two, said("nccl", {true, {}}), "nccl"),
              ElementsAre(link_status{"activations", "nccl", {}}, link_status{"shards", "peer", {}}));
}

// given: a job that trained for a while / expected: its course, and a time left at the pace of the last minute, stalls
// included; nothing of it when it is not asked for
TEST(status, shows_the_course_of_the_training) {
  job_entry entry;
  entry.state = job_state::running;
  entry.specification.steps = 100;
  auto view = std::make_shared<job_view>(*sample_picture().view);
  view->losses = {{10, 4.5}, {12, 4.25}};
  view->validation_losses = {{10, 5}};
  view->keepers = {{"k", 10, 2}};
  view->layers = 3;
  auto x = status_of({7}, entry, {view, 0, nullptr}, {});
  EXPECT_THAT(x.losses, ElementsAre(loss_point{10, 4.5}, loss_point{12, 4.25}));
  EXPECT_EQ(x.loss_steps, 12);
  EXPECT_THAT(x.validation_losses, ElementsAre(loss_point{10, 5}));
  EXPECT_THAT(x.keepers, ElementsAre(keeper_status{"k", 10, 2}));
  EXPECT_EQ(x.layers, 3u);
  EXPECT_THAT(x.grid_incarnations, ElementsAre(incarnation{1}, incarnation{1}));
  EXPECT_DOUBLE_EQ(x.time_left_ms, 88 * 50) << "only the step time is known";
  EXPECT_EQ(x.data_wait_for, "") << "nobody waited";
  view->data_waits = {{0, {3, "/one"}}, {1, {4, "/two"}}, {7, {5, "/of a rank that is no more"}}};
  x = status_of({7}, entry, {view, 0, nullptr}, {});
  EXPECT_EQ(x.data_wait_ms, 4);
  EXPECT_EQ(x.data_wait_for, to_string(view->grid->participants.at(1).slot) + ": /two");
  EXPECT_EQ(x.slowest_slot, "");
  step_parts waits{.forward_ms = 3, .pipeline_ms = 2}, works{.forward_ms = 4, .exchange_ms = 1};
  view->times = {{0, waits}, {1, works}, {7, {}}};
  x = status_of({7}, entry, {view, 0, nullptr}, {});
  const auto name = [&](std::size_t rank) { return to_string(view->grid->participants.at(rank).slot); };
  EXPECT_THAT(x.step_times, ElementsAre(slot_times{waits, name(0)}, slot_times{works, name(1)}));
  EXPECT_EQ(x.slowest_slot, name(1));
  EXPECT_EQ(x.transport, transport_state{}) << "nobody has said";
  view->transports = {{0, {"tcp", "one", {}}}, {1, {"tcp", "two", "too late"}}, {7, {"nccl", "three", "no more"}}};
  x = status_of({7}, entry, {view, 0, nullptr}, {});
  EXPECT_EQ(x.transport,
            (transport_state{"tcp", "one, two", to_string(view->grid->participants.at(1).slot) + ": too late"}));
  view->transports = {{0, {"tcp", "one", {}, {true, {}}}}, {1, {"tcp", "one", {}, {true, "by the host"}}}};
  EXPECT_EQ(status_of({7}, entry, {view, 0, nullptr}, {}).transport.peers,
            (peer_copies{true, to_string(view->grid->participants.at(1).slot) + ": by the host"}));
  view->transports = {{0, {"tcp", "one", {}}}, {1, {"nccl", "one", {}}}};
  EXPECT_EQ(status_of({7}, entry, {view, 0, nullptr}, {}).transport, (transport_state{"nccl", "one", {}}));
  view->steps_per_s = 4;
  EXPECT_DOUBLE_EQ(status_of({7}, entry, {view, 0, nullptr}, {}).time_left_ms, 22'000);
  EXPECT_THAT(status_of({7}, entry, {view, 0, nullptr}, {.losses_from = 11}).losses, ElementsAre(loss_point{12, 4.25}));
  view->grid.reset();
  x = status_of({7}, entry, {view, 0, nullptr}, {});
  EXPECT_DOUBLE_EQ(x.time_left_ms, -1) << "nothing runs";
  EXPECT_DOUBLE_EQ(x.samples_per_s, 0);
}

// given: a client that knows some already / expected: only the rest
TEST(status, leaves_out_what_is_known) {
  auto x = status_of({7}, {}, sample_picture(), {0, 4, 11});
  EXPECT_EQ(x.changes.size(), 1u);
  EXPECT_EQ(x.events.size(), 1u);
  EXPECT_EQ(x.change_count, 5u);
  EXPECT_EQ(x.event_count, 12u);
}

// given: a job that never ran / expected: its name and state
TEST(status, shows_a_queued_job) {
  job_entry entry;
  entry.specification.name = "text";
  auto x = status_of({1}, entry, job_picture{}, {});
  EXPECT_EQ(x.name, "text");
  EXPECT_EQ(x.state, "queued");
  EXPECT_EQ(x.width, 0u);
}

} // namespace
} // namespace parcae
