#pragma once

// What the manager's journal says, as plain values, and their bytes (Cap'n Proto, journal.capnp). One value a job and
// kind, written anew as a whole: nothing is replayed.

#include "protocols/base/described.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/values/job_specification.hpp"
#include "protocols/values/market.hpp"
#include "protocols/values/state.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// No value of the journal is larger, bytes.
inline constexpr std::size_t journal_limit_bytes = 64 << 20;

/// Where a keeper put its share of a checkpoint.
struct share_place {
  slot_id keeper;
  std::string folder; ///< absolute, there

  friend bool operator==(const share_place&, const share_place&) = default;
};
BOOST_DESCRIBE_STRUCT(share_place, (), (keeper, folder))

/// All that a conductor has to know to take up the job of one that is no more.
struct durable_state {
  generation reserved;           ///< none higher was ever prepared
  std::vector<chain_link> chain; ///< the last one's end is UINT64_MAX while it may run
  generation last;               ///< that was activated; 0: none was
  placement grid;                ///< of that
  commit_result result;          ///< how that ended, as in DECIDE
  std::string data_digest;
  version checkpoint; ///< newest complete one
  std::string checkpoint_name;
  std::vector<share_place> checkpoint_folders;
  std::vector<std::uint64_t> checkpoints_on_disk; ///< steps of the complete ones that are kept, ascending
  bool over = false;                              ///< the job ended
  bool good = false;                              ///< that it did so well
  std::string why;                                ///< if not
  std::vector<layer_digest> layer_digests;        ///< of the final parameters, if it did
  std::uint64_t replayed_steps = 0;               ///< computed again so far

  friend bool operator==(const durable_state&, const durable_state&) = default;
};
BOOST_DESCRIBE_STRUCT(durable_state, (),
                      (reserved, chain, last, grid, result, data_digest, checkpoint, checkpoint_name,
                       checkpoint_folders, checkpoints_on_disk, over, good, why, layer_digests, replayed_steps))

/// A job as the queue has it.
struct job_record {
  job_specification specification;
  std::uint8_t state = 0; ///< of job_state
  std::int32_t priority = 0;
  bool cancel_asked = false;
  bool gave_way = false;
  std::string why;
  std::string owner;
  std::int64_t submitted_ms = 0; ///< since 1970; 0: of an older build
};
BOOST_DESCRIBE_STRUCT(job_record, (),
                      (specification, state, priority, cancel_asked, gave_way, why, owner, submitted_ms))

/// What managers of one journal share.
struct cluster_record {
  std::uint64_t life = 0;              ///< told to nodes as manager_life
  std::vector<std::uint64_t> secret;   ///< words of the key that all tokens follow from
  std::vector<std::uint64_t> managers; ///< all that had this journal, in order: random numbers of theirs
};
BOOST_DESCRIBE_STRUCT(cluster_record, (), (life, secret, managers))

std::vector<char> encode(const durable_state& x);
std::vector<char> encode(const job_record& x);
std::vector<char> encode(const cluster_record& x);
std::vector<char> encode(const ledger_record& x);

/// Of durable_state, job_record, cluster_record, ledger_record. Throws std::runtime_error with one line on what is
/// wrong.
template <class T>
T decode_journal(std::span<const char> bytes);

} // namespace parcae
