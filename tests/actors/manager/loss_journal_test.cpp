// The journal's record of losses: after each transaction it has all that was told, whatever happened before.

#include "actors/manager/journal_store.hpp"
#include "actors/manager/loss_journal.hpp"

#include <gmock/gmock.h>

#include <map>
#include <random>

namespace parcae::losses_in_journal {
namespace {

constexpr job_id job{7};

step_record record_of(std::uint64_t step, double more = 0) {
  return {1 / static_cast<double>(step + 1) + more, 2, 3, {}, 1'000 + static_cast<std::int64_t>(step)};
}

void add(loss_record& to, std::uint64_t until) {
  while (to.steps() < until)
    to.put(to.steps(), record_of(to.steps()));
}

/// The store, and what a manager that begins now finds there.
struct stored {
  stored() {
    job_record x;
    x.specification.name = "x";
    write({entry_of(job, x)});
  }

  void write(const std::vector<journal_entry>& all) {
    for (const auto& x : all)
      if (x.bytes.empty())
        std::erase_if(values, [&](const auto& y) { return erases(x, y.first); });
      else
        values[x.name] = x.bytes;
  }

  journaled_losses found() const {
    std::vector<journal_entry> all;
    for (const auto& [name, bytes] : values)
      all.push_back({name, bytes});
    return recovered_from(all).jobs.at(job).losses;
  }

  std::size_t bytes() const {
    std::size_t result = 0;
    for (const auto& [name, x] : values)
      result += x.size();
    return result;
  }

  std::map<std::string, std::vector<char>> values;
};

void expect_same(const loss_record& a, const loss_record& b) {
  ASSERT_EQ(a.steps(), b.steps());
  for (std::uint64_t step = 0; step < a.steps(); ++step) {
    ASSERT_EQ(a.find(step) != nullptr, b.find(step) != nullptr) << step;
    ASSERT_TRUE(!a.find(step) || a.find(step)->same(*b.find(step))) << step;
  }
}

// given: steps that come a few at a time / expected: only what is new is written, and once more with its block; at the
// end of the job a value a block
TEST(loss_journal, is_written_in_pieces) {
  loss_journal x(job);
  stored store;
  loss_record all;
  std::size_t written = 0;
  for (std::uint64_t steps = 5; steps <= 9000; steps += 5) {
    add(all, steps);
    const auto news = x.news(all, 8);
    for (const auto& y : news)
      written += y.bytes.size();
    EXPECT_LE(news.size(), loss_journal::max_values);
    store.write(news);
    if (steps % 1000 == 0)
      expect_same(store.found().all, all);
  }
  EXPECT_TRUE(x.news(all, 8).empty());
  EXPECT_LT(written, std::size_t{9000} * 36 * 20) << "a block of 4,096 steps is not written with each five";
  store.write(x.news(all, 8, true));
  expect_same(store.found().all, all);
  EXPECT_EQ(store.values.size(), 1u + 3u);
  EXPECT_LE(store.bytes(), 9000u * 40);
  store.write(erased(job));
  EXPECT_TRUE(store.values.empty());
}

// given: evaluations, going back, other bits, managers that die, by chance / expected: after each transaction what is
// there is what was told
TEST(loss_journal, has_all_that_was_told) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    auto x = loss_journal(job);
    stored store;
    loss_record all;
    for (int i = 0; i < 150; ++i) {
      switch (random() % 6) {
      case 0:
        all.go_back(all.steps() - std::min<std::uint64_t>(all.steps(), random() % 6000));
        while (all.steps() > 0 && !all.find(all.steps() - 1)) // steps that are not known at the end are not written
          all.go_back(all.steps() - 1);
        break;
      case 1:
        if (all.steps() > 0)
          all.evaluate(random() % all.steps(), 0.5);
        break;
      case 2:
        all.put(all.steps(), record_of(all.steps(), 1));
        break;
      case 3: {
        const auto found = store.found();
        x = loss_journal(job, found);
        all = found.all;
        break;
      }
      case 4:
        all.skip_to(all.steps() + random() % 3);
        all.put(all.steps(), record_of(all.steps()));
        break;
      default:
        add(all, all.steps() + random() % 3000);
      }
      for (auto news = x.news(all, 8); !news.empty(); news = x.news(all, 8))
        store.write(news);
      ASSERT_NO_FATAL_FAILURE(expect_same(store.found().all, all)) << "round " << round << ", " << i;
    }
  }
}

// given: much at once, as of a job that was resumed / expected: etcd's limit of a request is kept
TEST(loss_journal, writes_much_in_parts) {
  loss_journal x(job);
  stored store;
  loss_record all;
  add(all, 50'000);
  int requests = 0;
  for (auto news = x.news(all, 8); !news.empty(); news = x.news(all, 8)) {
    std::size_t bytes = 0;
    for (const auto& y : news)
      bytes += y.bytes.size();
    EXPECT_LT(bytes * 4 / 3, 1'000'000u);
    EXPECT_LT(news.size(), 100u);
    store.write(news);
    ++requests;
  }
  EXPECT_GT(requests, 5);
  expect_same(store.found().all, all);
}

// given: a store that takes nothing for a while / expected: then all of it
TEST(loss_journal, is_written_anew_after_a_failure) {
  loss_journal x(job);
  stored store;
  loss_record all;
  for (std::uint64_t steps = 100; steps <= 20'000; steps += 100) {
    add(all, steps);
    const auto news = x.news(all, 8);
    if (steps % 5000 < 1000)
      x.forget();
    else
      store.write(news);
  }
  for (auto news = x.news(all, 8); !news.empty(); news = x.news(all, 8))
    store.write(news);
  expect_same(store.found().all, all);
}

// given: requests that fail, or are done all the same, while steps are gone back behind / expected: at the end there is
// a value a block, and none is left over
TEST(loss_journal, leaves_nothing_behind_after_failures) {
  std::mt19937_64 random(1);
  loss_journal x(job);
  stored store;
  loss_record all;
  for (int i = 0; i < 3'000; ++i) {
    add(all, all.steps() + 1 + random() % 20);
    if (random() % 200 == 0)
      all.go_back(all.steps() - std::min<std::uint64_t>(all.steps(), random() % 6'000));
    const auto news = x.news(all, 8);
    const bool fails = random() % 10 == 0;
    if (!fails || random() % 2)
      store.write(news);
    if (fails)
      x.forget();
    else
      x.written(x.told());
    EXPECT_LE(news.size(), loss_journal::max_values);
  }
  for (auto news = x.news(all, 8, true); !news.empty(); news = x.news(all, 8, true))
    store.write(news);
  expect_same(store.found().all, all);
  EXPECT_EQ(store.values.size(), 1 + (all.steps() + loss_block_steps - 1) / loss_block_steps);
}

// given: a block that is damaged / expected: the journal is not believed
TEST(loss_journal, that_is_damaged_is_refused) {
  stored store;
  loss_record all;
  add(all, 10);
  store.write(loss_journal(job).news(all, 8));
  store.values.at(losses_name(job, 0))[60] ^= 1;
  EXPECT_THROW(store.found(), std::runtime_error);
}

} // namespace
} // namespace parcae::losses_in_journal
