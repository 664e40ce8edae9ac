#pragma once

// Where the journal is kept, and what it says when the manager starts. Values have names: "cluster", "ledger", and for
// each job "job/7" (job_record), "job/7/memory" (durable_state), "job/7/processor" (text), "job/7/last" (its last
// status, or what of it is not too much); while it runs "job/7/history" (its newest), "job/7/reached" (the newest
// version reported while it runs: "450 7", steps and generation). What came of its steps is "job/7/losses/STEP"
// (loss_journal.hpp), as long as there is anything of the job.

#include "actors/manager/local_messages.hpp"
#include "protocols/client/client.hpp"
#include "protocols/client/journal.hpp"
#include "protocols/values/loss_record.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

inline constexpr const char* memory_part = "/memory";
inline constexpr const char* processor_part = "/processor";
inline constexpr const char* last_part = "/last";
inline constexpr const char* history_part = "/history";
inline constexpr const char* reached_part = "/reached";
inline constexpr const char* losses_part = "/losses/"; ///< and a step

/// Not thread-safe. Throws std::runtime_error with one line on what is wrong and where.
class journal_store {
public:
  virtual ~journal_store() = default;

  virtual std::vector<journal_entry> read() = 0;

  /// All or nothing; durable when it returns. No more values than etcd takes at once, 128.
  virtual void write(const std::vector<journal_entry>& all) = 0;
};

/// What a manager finds of a job.
struct recovered_job {
  job_record record;
  durable_state durable; ///< if it runs; empty: nothing was prepared
  std::string processor; ///< of the workers that a reproducible job began on; empty: none did
  version reached;       ///< if it runs
  journaled_losses losses{};
  std::optional<status_reply> last; ///< of the job alone, on the clocks of that time; none: it never ran
};

struct recovered_state {
  std::optional<cluster_record> cluster; ///< none: this is the first manager
  std::map<job_id, recovered_job> jobs;
  ledger_record ledger; ///< empty: nothing was rented
};

/// Throws std::runtime_error on what no manager has written. What it has of a job besides its record, without that, is
/// of one that was forgotten.
recovered_state recovered_from(const std::vector<journal_entry>& all);

std::string name_in_journal(job_id job, const char* part = "");

journal_entry entry_of(const cluster_record& x);
journal_entry entry_of(const ledger_record& x);
journal_entry entry_of(job_id job, const job_record& x);
journal_entry entry_of(job_id job, const durable_state& x);

/// As its history if the job runs, else as its last status; at `now` of its manager's clock. Of what would be too much
/// the newest is kept.
journal_entry entry_of(job_id job, job_status x, time_point now);

journal_entry entry_of(job_id job, const version& reached);

journal_entry processor_entry(job_id job, const std::string& processor);

/// All that it has of a job is to go.
std::vector<journal_entry> erased(job_id job);

/// The end of the range of all names that begin with `prefix`.
inline std::string after_all_of(std::string prefix) {
  ++prefix.back();
  return prefix;
}

/// Whether the value `name` goes by this one.
inline bool erases(const journal_entry& x, std::string_view name) {
  return x.bytes.empty() && (name == x.name || (x.name.ends_with('/') && name.starts_with(x.name)));
}

} // namespace parcae
