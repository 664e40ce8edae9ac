// Samples are read ahead; what a disk that cannot keep up costs is told, and what goes wrong is thrown where it is
// used.

#include "gpu/training/sample_reader.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

namespace parcae {
namespace {

using std::chrono::milliseconds;

/// Its tokens are the sample's place; slow, or broken from some number of reads on.
struct fake_data final : dataset {
  const std::string& digest() const override { return digest_; }
  std::string whole_digest(const std::atomic<bool>&) const override { return {}; }
  std::uint64_t size() const override { return 1'000'000; }
  std::string file_of(std::uint64_t index) const override { return "file " + std::to_string(index); }

  void read(std::uint64_t index, std::span<std::int64_t> input, std::span<std::int64_t> target) const override {
    const auto number = ++reads;
    std::this_thread::sleep_for(takes);
    if (number > good)
      throw sample_error("broken");
    std::ranges::fill(input, static_cast<std::int64_t>(index));
    std::ranges::fill(target, static_cast<std::int64_t>(index));
  }

  milliseconds takes{0};
  std::uint64_t good = UINT64_MAX;
  mutable std::atomic<std::uint64_t> reads = 0;
  std::string digest_;
};

struct sample_reader_test : testing::Test {
  sample_reader_test() {
    job.steps = 3;
    job.global_batch = 16;
    job.micro_batch = 2;
    job.model = {.sequence = 4};
    model = describe(job.model);
  }

  /// Of the second of two pipelines.
  sample_reader::plan plan() const { return {&job, &model, data, processor(), 4, 4, true}; }

  std::int64_t number_in(const sample_tensors& x, std::int64_t sample) const {
    return sample_values(x.inputs, sample).front();
  }

  job_specification job;
  model_description model;
  std::shared_ptr<fake_data> data = std::make_shared<fake_data>();
  const std::atomic<bool> go_on = false;
};

TEST_F(sample_reader_test, gives_every_micro_batch_in_order) {
  sample_reader reader(plan());
  reader.begin(1);
  sample_source expected(job, data);
  for (std::uint64_t step = 1; step < 3; ++step)
    for (std::uint64_t i = 4; i < 8; ++i) {
      const auto x = reader.take(go_on);
      for (std::int64_t k = 0; k < 2; ++k)
        ASSERT_EQ(number_in(x, k),
                  static_cast<std::int64_t>(expected.place_of(step * 16 + i * 2 + static_cast<std::uint64_t>(k))));
    }
  EXPECT_EQ(data->reads, 16u); // none of steps that are not the job's
}

// given: a step that takes longer than reading / expected: nothing is waited for; no more than two steps are read ahead
TEST_F(sample_reader_test, reads_ahead_while_a_step_runs) {
  job.steps = 100;
  sample_reader reader(plan());
  reader.begin(0);
  while (data->reads < 16)
    std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(50)); // it could go on
  EXPECT_EQ(data->reads, 16u);
  for (int i = 0; i < 8; ++i)
    reader.take(go_on);
  const auto waits = reader.take_waits();
  EXPECT_EQ(waits.ms, 0);
  EXPECT_EQ(waits.longest_for, "");
}

// given: a disk that takes 100 ms for a sample / expected: the time waited, and a file that was waited for
TEST_F(sample_reader_test, tells_what_it_waited_for) {
  data->takes = milliseconds(100); // longer than a busy machine keeps a thread waiting
  sample_reader reader(plan());
  reader.begin(0);
  std::string files;
  sample_source expected(job, data);
  std::chrono::duration<double, std::milli> taking{0};
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    reader.take(go_on);
    if (i > 0) // nothing is read ahead of the first
      taking += std::chrono::steady_clock::now() - begin;
    for (std::uint64_t k = 0; k < 2; ++k)
      files += data->file_of(expected.place_of(8 + 2 * i + k)) + ",";
  }
  const auto waits = reader.take_waits();
  EXPECT_GT(waits.ms, 0.8 * taking.count());
  EXPECT_LE(waits.ms, taking.count());
  EXPECT_GT(waits.ms, 100); // of 400, however busy the machine is
  ASSERT_NE(waits.longest_for, "");
  EXPECT_THAT(files, testing::HasSubstr(waits.longest_for + ","));
  EXPECT_EQ(reader.take_waits().ms, 0);
}

// given: a sample that is broken, in the third micro-batch / expected: the two before it are given; then always the
// error
TEST_F(sample_reader_test, throws_what_reading_threw) {
  data->good = 5;
  sample_reader reader(plan());
  reader.begin(0);
  reader.take(go_on);
  reader.take(go_on);
  EXPECT_THROW(reader.take(go_on), sample_error);
  EXPECT_THROW(reader.take(go_on), sample_error);
}

TEST_F(sample_reader_test, waits_no_longer_than_the_generation_lives) {
  data->takes = milliseconds(300);
  std::atomic<bool> aborted = false;
  sample_reader reader(plan());
  reader.begin(0);
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(20));
    aborted = true;
  });
  EXPECT_FALSE(reader.take(aborted).inputs.defined());
  ends.join();
}

} // namespace
} // namespace parcae
