// The journal on disk, and what a manager finds in it.

#include "runtime/journal/sqlite_journal.hpp"
#include "tests/support/names.hpp"
#include "tests/support/recorded.hpp"
#include "tests/support/thrown_by.hpp"

#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>

namespace parcae {
namespace {

/// While it lives, no file that SQLite writes takes another byte.
class no_space {
public:
  no_space() { set(reinterpret_cast<sqlite3_syscall_ptr>(&refuse)); }
  ~no_space() { set(nullptr); }

private:
  static ssize_t refuse(int, const void*, std::size_t, off_t) {
    errno = ENOSPC;
    return -1;
  }

  /// In the place of the system's; null: those again.
  static void set(sqlite3_syscall_ptr x) {
    auto* files = sqlite3_vfs_find(nullptr);
    for (const auto* name : {"pwrite", "pwrite64", "write"}) // whichever it was built to use
      files->xSetSystemCall(files, name, x);
  }
};

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
    return thrown_by([&] { open_journal(folder); });
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

// given: a folder that others may read; then files that an older build left open to them / expected: nobody else can
// read a journal, from its beginning on
TEST_F(sqlite_journal, is_for_its_owner_alone) {
  namespace fs = std::filesystem;
  const auto open_to_others = [&] {
    std::vector<std::string> result;
    for (const auto& x : fs::directory_iterator(folder))
      if ((x.status().permissions() & (fs::perms::group_all | fs::perms::others_all)) != fs::perms::none)
        result.push_back(x.path().filename());
    return result;
  };
  fs::create_directories(folder);
  fs::permissions(folder, fs::perms(0755));
  const auto mask = ::umask(0);
  {
    const auto x = open_journal(folder);
    EXPECT_THAT(open_to_others(), testing::IsEmpty()) << "before a secret is in it";
    x->write({{"cluster", bytes("secret")}});
    EXPECT_TRUE(fs::exists(folder / "journal.sqlite-wal"));
    EXPECT_THAT(open_to_others(), testing::IsEmpty());
  }
  std::ofstream(folder / "journal.sqlite-wal").flush();
  fs::permissions(folder / "journal.sqlite", fs::perms(0644));
  EXPECT_THAT(open_to_others(), testing::SizeIs(2));
  EXPECT_EQ(content(*open_journal(folder)).at("cluster"), "secret");
  ::umask(mask);
  EXPECT_THAT(open_to_others(), testing::IsEmpty());
}

// given: a folder that cannot be made, a file that is no database / expected: one line that names it
TEST_F(sqlite_journal, says_what_is_wrong_with_it) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "journal.sqlite") << std::string(10'000, 'x');
  EXPECT_THAT(problem(), HasSubstr("journal.sqlite"));
  EXPECT_THAT(problem(), HasSubstr("not a database"));
}

// given: no space left on the disk / expected: a write says so, all or nothing is done, what was there stays; with
// space again the next process writes
TEST_F(sqlite_journal, a_full_disk_leaves_what_was) {
  auto x = open_journal(folder);
  x->write({{"a", bytes("1")}, {"b", bytes("1")}});
  std::string why;
  try {
    const no_space disk;
    x->write({{"a", bytes("2")}, {"b", bytes(std::string(100'000, '2'))}});
  } catch (const std::runtime_error& e) {
    why = e.what();
  }
  EXPECT_THAT(why, HasSubstr((folder / "journal.sqlite").string() + " cannot be written: database or disk is full"));
  const std::map<std::string, std::string> before{{"a", "1"}, {"b", "1"}};
  EXPECT_EQ(content(*x), before);
  x.reset();
  x = open_journal(folder);
  EXPECT_EQ(content(*x), before);
  x->write({{"a", bytes("3")}});
  EXPECT_EQ(content(*x).at("a"), "3");
}

// given: the journal of every older build / expected: all jobs, as they were
TEST_F(sqlite_journal, of_older_builds_is_read) {
  for (const auto& from : recordings()) {
    SCOPED_TRACE(from);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file(from / "journal.sqlite", folder / "journal.sqlite"); // it is written to
    expect_recorded_jobs(recovered_from(open_journal(folder)->read()), from / "sqlite_status.json");
  }
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
  durable_state memory;
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
  x->write({entry_of(cluster_record{5, {1, 2, 3, 4}, {6, 7}}), entry_of({3}, record), entry_of({3}, memory),
            entry_of({3}, last, time_point()), entry_of({3}, version{7, {2}}), processor_entry({3}, "cpu"),
            processor_entry({4}, "of a job that was forgotten")});
  const auto found = recovered_from(x->read());
  ASSERT_TRUE(found.cluster);
  EXPECT_EQ(found.cluster->life, 5u);
  EXPECT_EQ(found.cluster->secret, (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(found.cluster->managers, (std::vector<std::uint64_t>{6, 7}));
  ASSERT_EQ(found.jobs.size(), 1u);
  const auto& job = found.jobs.at({3});
  EXPECT_EQ(encode(job.record), encode(record));
  EXPECT_EQ(job.durable, memory);
  EXPECT_EQ(job.processor, "cpu");
  ASSERT_TRUE(job.last);
  EXPECT_EQ(job.last->jobs.at(0).parameters_sha256, "hash");
  EXPECT_GT(job.last->wall_us, 0);
  EXPECT_EQ(job.reached, (version{7, {2}}));
  x->write({{"job/3/losses/0", bytes("x")}, {"job/3/losses/8192", bytes("x")}, {"job/30", encode(record)}});
  x->write(erased({3}));
  EXPECT_EQ(recovered_from(x->read()).jobs.size(), 1u) << "of job 30";
  x->write(erased({30}));
  for (const auto& y : x->read())
    EXPECT_FALSE(y.name.starts_with("job/3")) << y.name;
}

// given: names and values that no manager writes, and each value cut short / expected: refused with one line
TEST_F(sqlite_journal, believes_nothing) {
  durable_state memory;
  memory.last = {1};
  memory.grid = {1, 1, {0, 4}, {{{"a", {7}, 0}, "host", 1}}};
  EXPECT_THROW(recovered_from({{"jobs/1", bytes("x")}}), std::runtime_error);
  EXPECT_THROW(recovered_from({{"job/x", bytes("x")}}), std::runtime_error);
  for (const auto* text : {"", "7", "7 ", " 2", "7 2 ", "7 2x", "7  2", "-7 2"})
    EXPECT_THROW(recovered_from({{"job/1/reached", bytes(text)}}), std::runtime_error) << text;
  auto whole = encode(memory);
  EXPECT_NO_THROW(decode_journal<durable_state>(whole));
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(decode_journal<durable_state>(std::span(whole).first(size)), std::runtime_error) << size;
  memory.grid.depth = 2;
  EXPECT_THROW(decode_journal<durable_state>(encode(memory)), std::runtime_error);
}

} // namespace
} // namespace parcae
