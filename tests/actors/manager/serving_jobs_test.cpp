// A registry with gateways, jobs that serve, and jobs that do not, in virtual time.

#include "actors/manager/journal.hpp"
#include "tests/actors/manager/registry_fixture.hpp"
#include "tests/support/names.hpp"

#include <algorithm>

namespace parcae {
namespace {

/// Forgets all.
struct no_store final : journal_store {
  std::vector<journal_entry> read() override { return {}; }
  void write(const std::vector<journal_entry>&) override {}
};

struct serving_registry : registry_test {
  job_specification service() {
    job_specification x;
    x.kind = "serve";
    x.optimizer.kind = "none";
    return x;
  }

  hello gateway(const std::string& name) {
    auto x = greeting(name, role::gateway);
    x.http = "http://127.0.0.1:8000";
    return x;
  }

  bool was_told_to_forget(const std::string& name) { return times_told<forget>(name) > 0; }
};

// given: only a gateway, then a worker / expected: a job that trains waits for workers, and then knows no gateway
TEST_F(serving_registry, a_gateway_is_no_worker) {
  join(gateway("g"));
  serve(submit_request{job()});
  EXPECT_EQ(status().jobs[0].state, "queued");
  EXPECT_THAT(status().jobs[0].problem, testing::HasSubstr("waits for workers"));
  join(greeting("a"));
  advance(100ms);
  EXPECT_EQ(status().jobs[0].state, "running");
  EXPECT_EQ(attached["a"].size(), 1u);
  EXPECT_TRUE(attached["g"].empty());
  tell(registry, leaving_notice{"g", life_of["g"], 10'000});
  EXPECT_EQ(told["g"].released, 1) << "the job does not need it";
}

// given: a gateway, a keeper and a worker / expected: a job that serves has the gateway and the worker, as the keeper
// may hold what is left of another job; `status` knows where it answers; when it is cancelled the gateway hears so
TEST_F(serving_registry, a_job_that_serves_has_gateways_and_no_keepers) {
  join(gateway("g"));
  join(greeting("k", role::keeper));
  join(greeting("a"));
  serve(submit_request{service()});
  advance(100ms);
  const auto job = status().jobs.at(0);
  EXPECT_EQ(job.state, "running");
  EXPECT_EQ(job.kind, "serve");
  EXPECT_EQ(job.gateway, "g");
  EXPECT_EQ(job.http, "http://127.0.0.1:8000");
  EXPECT_EQ(attached["g"].size(), 1u);
  EXPECT_EQ(attached["a"].size(), 1u);
  EXPECT_TRUE(attached["k"].empty());
  serve(cancel_request{1});
  run();
  EXPECT_TRUE(was_told_to_forget("g"));
  EXPECT_TRUE(was_told_to_forget("a"));
  EXPECT_FALSE(was_told_to_forget("k"));
}

// given: the manager's end while a job serves, with a journal / expected: it ends at once, and nobody is told that the
// job is over
TEST_F(serving_registry, the_managers_end_leaves_what_serves) {
  auto config = in_virtual_time();
  config.journal = owned(system.spawn(journal, std::make_shared<no_store>()));
  registry = owned(system.spawn(parcae::registry, std::move(config)));
  join(registry, gateway("g"));
  join(registry, greeting("a"));
  serve(submit_request{service()});
  advance(100ms);
  ASSERT_EQ(status().jobs[0].state, "running");
  tell(registry, end_atom_v);
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(was_told_to_forget("g"));
  EXPECT_EQ(times_told<stop>("a") + times_told<abort_generation>("a") + times_told<forget>("a"), 0);
}

} // namespace
} // namespace parcae
