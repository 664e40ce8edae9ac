// A registry that finds the jobs of one before in its journal, in virtual time.

#include "actors/manager/journal.hpp"
#include "actors/manager/registry.hpp"
#include "protocols/client/client.hpp"
#include "tests/support/actor_fixture.hpp"

#include <map>

namespace parcae {
namespace {

using testing::ElementsAre;

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
        values.erase(x.name);
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
    caf::anon_send_exit(registry, caf::exit_reason::kill);
    run();
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
  job_memory memory;
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
