// The journal on disk, and what a manager finds in it.

#include "runtime/journal/sqlite_journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace parcae {
namespace {

using testing::HasSubstr;

struct sqlite_journal : testing::Test {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("journal-" + std::to_string(::getpid()));

  void SetUp() override { std::filesystem::remove_all(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }

  static std::vector<char> bytes(const std::string& x) { return {x.begin(), x.end()}; }

  static std::map<std::string, std::string> content(journal_store& x) {
    std::map<std::string, std::string> result;
    for (const auto& e : x.read())
      result[e.name] = {e.bytes.begin(), e.bytes.end()};
    return result;
  }

  std::string problem() {
    try {
      open_journal(folder);
      return {};
    } catch (const std::runtime_error& e) {
      return e.what();
    }
  }
};

// given: values written, replaced and taken out / expected: another process, later, finds what was written last
TEST_F(sqlite_journal, has_what_was_written_last) {
  {
    const auto x = open_journal(folder);
    x->write({{"a", bytes("1")}, {"b", bytes(std::string("\0x", 2))}});
    x->write({{"a", bytes("2")}, {"c", bytes("3")}, {"b", {}}});
  }
  const std::map<std::string, std::string> expected{{"a", "2"}, {"c", "3"}};
  EXPECT_EQ(content(*open_journal(folder)), expected);
}

// given: a journal that is open / expected: it cannot be opened again; once it is closed it can
TEST_F(sqlite_journal, is_for_one_manager) {
  auto x = open_journal(folder);
  EXPECT_THAT(problem(), HasSubstr("another manager uses " + folder.string()));
  x.reset();
  EXPECT_EQ(problem(), "");
}

// given: a folder that cannot be made, a file that is no database / expected: one line that names it
TEST_F(sqlite_journal, says_what_is_wrong_with_it) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "journal.sqlite") << std::string(10'000, 'x');
  EXPECT_THAT(problem(), HasSubstr("journal.sqlite"));
  EXPECT_THAT(problem(), HasSubstr("not a database"));
}

// given: a journal of a newer build / expected: refused
TEST_F(sqlite_journal, of_a_newer_build_is_refused) {
  open_journal(folder);
  std::fstream file(folder / "journal.sqlite", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(60); // user_version, big-endian (SQLite's file format, section 1.3)
  file.write("\0\0\0\x63", 4);
  file.close();
  EXPECT_THAT(problem(), HasSubstr("newer build"));
}

// given: all that a manager keeps / expected: found again, field by field
TEST_F(sqlite_journal, carries_all_that_a_manager_keeps) {
  job_record record;
  record.specification.name = "j";
  record.state = 1;
  record.priority = -3;
  record.cancel_asked = record.gave_way = true;
  record.why = "because";
  job_memory memory;
  memory.reserved = {200};
  memory.chain = {{{1}, 0, 5}, {{2}, 5, UINT64_MAX}};
  memory.last = {2};
  memory.grid = {2, 1, {0, 4}, {{{"a", {7}, 0}, "host", 1}, {{"b", {8}, 1}, "::1", 2}}};
  memory.result = {4, 0.5, 0.25, 0.1, 1e-3, true, true};
  memory.data_digest = "digest";
  memory.checkpoint = {5, {1}};
  memory.checkpoint_name = "run/5@1";
  memory.checkpoint_folders = {{{"k", {9}, 0}, "/state/run/5@1"}};
  memory.checkpoints_on_disk = {3, 5};
  memory.over = memory.good = true;
  memory.why = "done";
  memory.layer_digests = {{0, "a"}, {3, "b"}};
  job_status last;
  last.id = 3;
  last.parameters_sha256 = "hash";
  auto x = open_journal(folder);
  x->write({entry_of(cluster_identity{5, {1, 2, 3, 4}, {6, 7}}), entry_of({3}, record), entry_of({3}, memory),
            entry_of({3}, last), processor_entry({3}, "cpu"), processor_entry({4}, "of a job that was forgotten")});
  const auto found = recovered_from(x->read());
  ASSERT_TRUE(found.cluster);
  EXPECT_EQ(found.cluster->life, 5u);
  EXPECT_EQ(found.cluster->secret, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(found.cluster->managers, (std::vector<std::uint64_t>{6, 7}));
  ASSERT_EQ(found.jobs.size(), 1u);
  const auto& job = found.jobs.at({3});
  EXPECT_EQ(encode(job.record), encode(record));
  EXPECT_EQ(job.memory, memory);
  EXPECT_EQ(job.processor, "cpu");
  ASSERT_TRUE(job.last);
  EXPECT_EQ(job.last->parameters_sha256, "hash");
  x->write(erased({3}));
  EXPECT_TRUE(recovered_from(x->read()).jobs.empty());
}

// given: names and values that no manager writes, and each value cut short / expected: refused with one line
TEST_F(sqlite_journal, believes_nothing) {
  job_memory memory;
  memory.last = {1};
  memory.grid = {1, 1, {0, 4}, {{{"a", {7}, 0}, "host", 1}}};
  EXPECT_THROW(recovered_from({{"jobs/1", bytes("x")}}), std::runtime_error);
  EXPECT_THROW(recovered_from({{"job/x", bytes("x")}}), std::runtime_error);
  auto whole = encode(memory);
  EXPECT_NO_THROW(decode_journal<job_memory>(whole));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(decode_journal<job_memory>(std::span(whole).first(size)), std::runtime_error) << size;
  memory.grid.depth = 2;
  EXPECT_THROW(decode_journal<job_memory>(encode(memory)), std::runtime_error);
}

} // namespace
} // namespace parcae
