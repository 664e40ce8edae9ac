// LOAD is done at once, FORGET after the step in progress: one job's data is not taken for another's, in any order.

#include "gpu/training/data_loader.hpp"
#include "tests/support/executor_cluster.hpp"

#include <gmock/gmock.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

namespace parcae {
namespace {

using std::chrono::seconds;

/// What the loader reports, and a door before each LOAD.
struct data_loader_test : testing::Test {
  data_loader_test() {
    options.report_to = [this](report x) {
      const std::lock_guard held(mutex);
      reports.push_back(std::move(x));
      changed.notify_all();
    };
    options.on_fault_point = [this](const fault_point& at) {
      std::unique_lock held(mutex);
      if (std::strcmp(at.phase, "load") != 0)
        return;
      ++begun;
      changed.notify_all();
      changed.wait(held, [&] { return open; });
    };
  }
  ~data_loader_test() override { let_in(); }

  void let_in() {
    const std::lock_guard held(mutex);
    open = true;
    changed.notify_all();
  }

  void wait_until_begun(int loads) {
    std::unique_lock held(mutex);
    EXPECT_TRUE(changed.wait_for(held, seconds(10), [&] { return begun == loads; }));
  }

  /// Of the answer to that LOAD; the reports after `seen` of them are looked through.
  std::string digest(job_id job, std::size_t seen = 0) {
    std::unique_lock held(mutex);
    std::string found;
    const auto is_there = [&] {
      for (auto i = seen; i < reports.size(); ++i)
        if (const auto* x = std::get_if<loaded>(&reports[i]); x && x->job == job)
          found = x->data_digest;
      return !found.empty();
    };
    EXPECT_TRUE(changed.wait_for(held, seconds(10), is_there));
    return found;
  }

  std::size_t number_of_reports() {
    const std::lock_guard held(mutex);
    return reports.size();
  }

  static load ask(job_id job, std::uint64_t samples) {
    auto specification = small_job();
    specification.data = {.kind = "synthetic", .samples = samples};
    return {job, specification};
  }

  executor_options options;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<report> reports;
  int begun = 0;
  bool open = true;
  const job_id first{1}, second{2};
};

// given: the LOAD of the next job comes before the FORGET of the former / expected: the answer is of the next one's
// data, and the late FORGET does not take that away: asked again, it is answered without being loaded
TEST_F(data_loader_test, next_jobs_load_may_overtake_forget) {
  data_loader loader(options, [] {});
  loader.begin(ask(first, 100));
  const auto of_first = digest(first);
  loader.begin(ask(second, 200));
  const auto of_second = digest(second);
  EXPECT_NE(of_second, of_first);
  loader.forget(first);
  const auto seen = number_of_reports();
  loader.begin(ask(second, 200));
  EXPECT_EQ(digest(second, seen), of_second);
  EXPECT_EQ(begun, 2);
}

// given: the same while the former job's data is still being loaded / expected: only the next job is answered
TEST_F(data_loader_test, job_that_is_gone_is_not_answered) {
  open = false;
  data_loader loader(options, [] {});
  loader.begin(ask(first, 100));
  wait_until_begun(1);
  loader.begin(ask(second, 200));
  let_in();
  digest(second);
  EXPECT_EQ(number_of_reports(), 1u);
}

// given: a job is forgotten while its data is being loaded, and asked for again / expected: one answer
TEST_F(data_loader_test, forgotten_job_may_come_back) {
  open = false;
  data_loader loader(options, [] {});
  loader.begin(ask(first, 100));
  wait_until_begun(1);
  loader.begin(ask(first, 100)); // the answer is to come
  loader.forget(first);
  loader.begin(ask(first, 100));
  let_in();
  digest(first);
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(number_of_reports(), 1u);
}

} // namespace
} // namespace parcae
