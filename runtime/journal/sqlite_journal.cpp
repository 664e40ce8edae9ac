#include "runtime/journal/sqlite_journal.hpp"

#include "protocols/base/durable_file.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

constexpr int layout = 1; ///< user_version of the database

/// Makes the database's file for its owner alone, before SQLite would make it for whom the umask says: it has the
/// cluster's key. SQLite gives the files beside it the same mode; older builds left them open to others. An existing
/// file is not opened here: closing it would give up SQLite's locks.
void make_private(const std::filesystem::path& file) {
  const auto fail = [](const std::string& what) {
    throw std::runtime_error("the journal " + what + ": " + std::system_category().message(errno));
  };
  if (const int made = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); made >= 0)
    ::close(made);
  else if (errno != EEXIST)
    fail(file.string() + " cannot be made");
  for (const auto* suffix : {"", "-wal", "-shm"}) {
    const auto each = file.string() + suffix;
    struct stat now {};
    if (::stat(each.c_str(), &now) == 0 && (now.st_mode & 077) != 0 && ::chmod(each.c_str(), 0600) != 0)
      fail(each + " can be read by others, and is not ours to close to them");
  }
}

class sqlite_journal final : public journal_store {
public:
  explicit sqlite_journal(std::filesystem::path file) : file_(std::move(file)) {
    make_private(file_);
    sqlite3* opened = nullptr;
    const auto problem = sqlite3_open_v2(file_.c_str(), &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
    database_.reset(opened);
    if (problem != SQLITE_OK)
      fail("cannot be opened");
    // The lock is taken with the first transaction and kept: a second manager is refused.
    run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
    run("BEGIN EXCLUSIVE; CREATE TABLE IF NOT EXISTS journal (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT "
        "ROWID; COMMIT;");
    check_layout();
    put_ = prepared("INSERT OR REPLACE INTO journal VALUES (?, ?)");
    erase_ = prepared("DELETE FROM journal WHERE name = ?");
    erase_all_ = prepared("DELETE FROM journal WHERE name >= ? AND name < ?");
  }

  std::vector<journal_entry> read() override {
    std::vector<journal_entry> result;
    const auto all = prepared("SELECT name, value FROM journal ORDER BY name");
    int state = 0;
    while ((state = sqlite3_step(all.get())) == SQLITE_ROW) {
      const auto* name = reinterpret_cast<const char*>(sqlite3_column_text(all.get(), 0));
      const auto* value = static_cast<const char*>(sqlite3_column_blob(all.get(), 1));
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(all.get(), 1));
      result.push_back({name ? name : "", value ? std::vector<char>(value, value + size) : std::vector<char>()});
    }
    if (state != SQLITE_DONE)
      fail("cannot be read");
    return result;
  }

  void write(const std::vector<journal_entry>& all) override {
    run("BEGIN IMMEDIATE");
    try {
      for (const auto& x : all)
        write_one(x);
      run("COMMIT");
    } catch (...) {
      sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
      throw;
    }
  }

private:
  struct closer {
    void operator()(sqlite3* x) const { sqlite3_close(x); }
    void operator()(sqlite3_stmt* x) const { sqlite3_finalize(x); }
  };
  using statement = std::unique_ptr<sqlite3_stmt, closer>;

  [[noreturn]] void fail(const char* what) const {
    const auto code = database_ ? sqlite3_errcode(database_.get()) : SQLITE_NOMEM;
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
      throw std::runtime_error("another manager uses " + file_.parent_path().string() +
                               ": end it, or give this one another folder with --state");
    throw std::runtime_error("the journal " + file_.string() + " " + what + ": " +
                             (database_ ? sqlite3_errmsg(database_.get()) : "no memory"));
  }

  void run(const char* sql) {
    if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK)
      fail("cannot be written");
  }

  statement prepared(const char* sql) const {
    sqlite3_stmt* result = nullptr;
    if (sqlite3_prepare_v2(database_.get(), sql, -1, &result, nullptr) != SQLITE_OK)
      fail("is none of a manager");
    return statement(result);
  }

  void check_layout() {
    const auto version = prepared("PRAGMA user_version");
    if (sqlite3_step(version.get()) != SQLITE_ROW)
      fail("cannot be read");
    const auto found = sqlite3_column_int(version.get(), 0);
    if (found > layout)
      throw std::runtime_error("the journal " + file_.string() + " is of a newer build: use that, or another --state");
    if (found < layout)
      run("PRAGMA user_version = 1");
  }

  void write_one(const journal_entry& x) {
    const bool puts = !x.bytes.empty(), is_range = !puts && x.name.ends_with('/');
    auto* to = puts ? put_.get() : is_range ? erase_all_.get() : erase_.get();
    sqlite3_reset(to);
    sqlite3_bind_text(to, 1, x.name.c_str(), -1, SQLITE_STATIC);
    const auto end = after_all_of(x.name);
    if (puts)
      sqlite3_bind_blob64(to, 2, x.bytes.data(), x.bytes.size(), SQLITE_STATIC);
    if (is_range)
      sqlite3_bind_text(to, 2, end.c_str(), -1, SQLITE_STATIC);
    const auto done = sqlite3_step(to);
    sqlite3_reset(to);
    if (done != SQLITE_DONE)
      fail("cannot be written");
  }

  const std::filesystem::path file_;
  std::unique_ptr<sqlite3, closer> database_; ///< before its statements
  statement put_, erase_, erase_all_;
};

} // namespace

std::unique_ptr<journal_store> open_journal(const std::filesystem::path& folder) {
  try {
    make_folders(folder, file_access::private_);
  } catch (const std::system_error& e) {
    throw std::runtime_error("cannot keep the journal in " + folder.string() + " (" + e.code().message() +
                             "): give another folder with --state");
  }
  return std::make_unique<sqlite_journal>(folder / "journal.sqlite");
}

} // namespace parcae
