// A registry that finds the jobs of one before in its journal, in virtual time.

#include "actors/manager/journal.hpp"
#include "actors/manager/registry.hpp"
#include "actors/manager/status.hpp"
#include "protocols/client/client.hpp"
#include "tests/support/actor_fixture.hpp"

#include <map>

namespace parcae {
namespace {

/// On no disk: what a test looks at.
struct memory_store final : journal_store {
  std::map<std::string, std::vector<char>> values;

  std::vector<journal_entry> read() override {
    std::vector<journal_entry> result;
    for (const auto& [name, bytes] : values)
      result.push_back({name, bytes});
    return result;
  }

  void write(const std::vector<journal_entry>& all) override {
    for (const auto& x : all)
      if (x.bytes.empty())
        std::erase_if(values, [&](const auto& y) { return erases(x, y.first); });
      else
        values[x.name] = x.bytes;
  }
};

struct registry_recovery : actor_test {
  std::shared_ptr<memory_store> store = std::make_shared<memory_store>();
  registry_actor registry = begin();

  registry_actor begin() {
    registry_config x;
    x.own_threads = false;
    x.manager_life = 77;
    x.journal = owned(system.spawn(journal, store));
    x.jobs = recovered_from(store->read()).jobs;
    return owned(system.spawn(parcae::registry, std::move(x)));
  }

  /// The process dies, and another begins.
  void restart() {
    const auto before = store->values;
    kill(registry);
    store->values = before; // what it said in dying was not said
    registry = begin();
    run();
  }

  reply serve(const request& x) { return decode_reply(ask<client_reply>(registry, client_request{encode(x)})->bytes); }

  std::uint64_t submit(const std::string& name) {
    job_specification x;
    x.name = name;
    x.data.path = "/data";
    return std::get<submitted_reply>(serve(submit_request{x})).job;
  }

  std::map<std::string, std::string> states() {
    std::map<std::string, std::string> result;
    const auto all = std::get<status_reply>(serve(status_request{})).jobs;
    for (const auto& x : all)
      result[x.name] = x.state;
    return result;
  }
};

// given: jobs that were submitted and cancelled under a registry that dies / expected: the next one has them, in their
// states, and numbers that were not used
TEST_F(registry_recovery, has_the_jobs_of_the_one_before) {
  EXPECT_EQ(submit("a"), 1u);
  EXPECT_EQ(submit("b"), 2u);
  EXPECT_EQ(submit("c"), 3u);
  serve(cancel_request{2});
  const auto before = states();
  EXPECT_EQ(before.at("b"), "cancelled");
  restart();
  EXPECT_EQ(states(), before);
  EXPECT_EQ(submit("d"), 4u);
}

// given: a job that was over for its conductor when the registry died / expected: over, as its conductor said
TEST_F(registry_recovery, a_job_that_was_over_does_not_begin_again) {
  submit("a");
  job_record record;
  ASSERT_NO_THROW(record = decode_journal<job_record>(store->values.at("job/1")));
  record.state = 1; // running
  durable_state memory;
  memory.over = memory.good = true;
  memory.chain = {{{1}, 0, 9}};
  memory.layer_digests = {{0, "hash of layer 0"}};
  store->write({entry_of({1}, record), entry_of({1}, memory)});
  restart();
  EXPECT_EQ(states().at("a"), "done");
  const auto shown = std::get<status_reply>(serve(status_request{})).jobs.at(0);
  EXPECT_EQ(shown.steps_done, 9u);
  EXPECT_EQ(shown.parameters_sha256.size(), 64u) << "what was trained is known";
}

/// As a manager kept it, one minute after whose event this one begins.
status_reply kept_status() {
  status_reply result;
  result.now_us = 5'000'000;
  result.wall_us = wall_clock_us() - 60'000'000;
  job_status x;
  x.id = 1;
  x.change_count = 7;
  x.migrations = {.none = 1, .intra_stage = 2, .inter_stage = 3, .pipeline = 1};
  x.changes = {{.number = 6,
                .to = 7,
                .trigger = "loss of b/0",
                .configuration = "2×1",
                .kind = "pipeline",
                .replayed_steps = 1,
                .active_ms = 30,
                .stall_ms = 20,
                .at_us = 4'000'000}};
  x.decision_count = 3;
  x.decisions.resize(1);
  x.decisions[0].number = 2;
  x.decisions[0].at_us = 4'000'000;
  x.decisions[0].reason = "because";
  x.event_count = 10;
  x.events = {{8, 4'000'000, "warning", "b/0 is not used for now", 1}, {9, 5'000'000, "information", "journal: it", 1}};
  x.losses = {{10, 4.5}, {20, 4.25}};
  x.loss = 4.25;
  x.steps_by_depth = {{1, 20}};
  result.jobs = {x};
  return result;
}

// given: a job that ran when its manager died, on a machine that was started anew since / expected: changes, decisions,
// events and losses as they were, with their numbers, at the times when they were; what comes is counted on
TEST_F(registry_recovery, a_job_that_goes_on_has_its_history) {
  submit("a");
  job_record record;
  ASSERT_NO_THROW(record = decode_journal<job_record>(store->values.at("job/1")));
  record.state = 1; // running
  durable_state memory;
  memory.reserved = memory.last = {7};
  memory.grid = {1, 1, {0, 4}, {{{"a", {1}, 0}, "127.0.0.1", 1}}};
  memory.chain = {{{1}, 0, 10}, {{7}, 10, UINT64_MAX}};
  memory.replayed_steps = 5;
  const auto last = kept_status();
  store->write({entry_of({1}, record),
                entry_of({1}, memory),
                entry_of({1}, version{20, {7}}),
                {name_in_journal({1}, history_part), encode(reply(last))}});
  restart();
  const auto all = std::get<status_reply>(serve(status_request{}));
  const auto& shown = all.jobs.at(0);
  EXPECT_EQ(shown.state, "running");
  EXPECT_EQ(shown.replayed_steps, 5u);
  EXPECT_EQ(shown.change_count, 7u);
  EXPECT_EQ(shown.migrations, last.jobs[0].migrations);
  EXPECT_EQ(shown.losses, last.jobs[0].losses);
  EXPECT_EQ(shown.loss, 4.25);
  ASSERT_EQ(shown.changes.size(), 1u);
  ASSERT_EQ(shown.decisions.size(), 1u);
  ASSERT_GE(shown.events.size(), 2u);
  EXPECT_EQ(shown.event_count, 8 + shown.events.size());
  EXPECT_EQ(shown.decision_count, 3u);
  const auto age_s = [&](std::int64_t at_us) { return (all.now_us - at_us + 500'000) / 1'000'000; };
  EXPECT_EQ(age_s(shown.changes[0].at_us), 61);
  EXPECT_EQ(age_s(shown.decisions[0].at_us), 61);
  EXPECT_EQ(age_s(shown.events[1].at_us), 60);
  auto change = shown.changes[0];
  change.at_us = 4'000'000;
  EXPECT_EQ(change, last.jobs[0].changes[0]);
  EXPECT_EQ(shown.events[0].number, 8u);
  EXPECT_EQ(shown.events[0].level, "warning");
}

// given: a job with more to tell than the journal takes / expected: the newest of each kind, and the count of all
TEST(journal_store, keeps_the_newest_of_a_long_history) {
  auto x = kept_status().jobs[0];
  x.event_count = 100'000;
  x.events.clear();
  for (std::uint64_t i = 99'000; i < x.event_count; ++i)
    x.events.push_back({i, 0, "information", std::string(1000, 'x'), 1});
  const auto kept = entry_of({1}, x, time_point());
  EXPECT_LT(kept.bytes.size(), 300'000u);
  const auto found = std::get<status_reply>(decode_reply(kept.bytes)).jobs.at(0);
  EXPECT_GT(found.events.size(), 50u);
  EXPECT_EQ(found.events.back().number, 99'999u);
  EXPECT_EQ(found.event_count, 100'000u);
}

// given: more jobs than are kept / expected: what the queue has forgotten is in the journal no more
TEST_F(registry_recovery, the_journal_forgets_with_the_queue) {
  for (int i = 1; i <= 100; ++i)
    submit(std::to_string(i));
  for (std::uint64_t i = 1; i <= 100; ++i)
    serve(cancel_request{i});
  submit("new");
  run();
  EXPECT_FALSE(store->values.contains("job/1"));
  EXPECT_TRUE(store->values.contains("job/2"));
  EXPECT_TRUE(store->values.contains("job/101"));
}

} // namespace
} // namespace parcae
