#pragma once

// What came of each step of a job, as long as there is anything of the job. Plain values, and their bytes: in messages,
// in the manager's journal, with checkpoints.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae {

struct step_record {
  double loss = 0;
  double gradient_norm = 0; ///< before clipping
  double learning_rate = 0;
  std::optional<double> validation_loss; ///< of the version that the step made, if it was evaluated
  std::int64_t at_ms = 0;                ///< when it was committed, since 1970; 0: nothing is known of the step

  bool is_known() const { return at_ms != 0; }
  /// Of the same step, whenever that was computed: every bit counts.
  bool same_result(const step_record& x) const;
  bool same(const step_record& x) const;
};

/// Steps in a row, as they travel and are stored: 36 bytes each, and 48 for all.
struct loss_block {
  std::uint64_t first = 0;
  std::uint32_t samples = 0; ///< in each step; 0: not known
  std::vector<step_record> all;

  std::uint64_t end() const { return first + all.size(); }
};

/// Steps of a block at most, and of one in storage, where the first step of each is a multiple of it.
inline constexpr std::uint64_t loss_block_steps = 4096;
inline constexpr std::size_t loss_block_limit_bytes = 48 + loss_block_steps * 36;

/// Requires x.all.size() ≤ loss_block_steps. Times are kept to the millisecond, of a block that spans up to 49 days.
std::vector<char> encode(const loss_block& x);
/// Throws std::runtime_error with one line if the bytes are not of a block, or were damaged.
loss_block decode_loss_block(std::span<const char> bytes);

/// The name of a block in storage, by its first step, and the step by the name; none: it is not the name of one.
std::string name_of_loss_block(std::uint64_t first);
std::optional<std::uint64_t> loss_block_in(std::string_view name);

/// Where blocks are, beside the checkpoints of a run.
inline constexpr const char* losses_folder = "losses";

/// Of the steps before `steps()`, as far as they are known. A copy is cheap, and may go to another thread: blocks that
/// two share never change, the next change of one is to a copy of it.
class loss_record {
public:
  loss_record() = default;
  loss_record(const loss_record& x) : blocks_(x.blocks_), end_(x.end_) { x.share_all(); }
  loss_record(loss_record&&) = default;
  loss_record& operator=(const loss_record& x) { return *this = loss_record(x); }
  loss_record& operator=(loss_record&&) = default;

  std::uint64_t steps() const { return end_; }

  /// Null: nothing is known of it.
  const step_record* find(std::uint64_t step) const;
  /// The first known step at or after this one; steps(): there is none.
  std::uint64_t first_known(std::uint64_t from = 0) const;
  /// Where to go on for who knows of the steps before `from`: the last of them may have been evaluated since. Those
  /// before were, where that was due, when it was committed.
  std::uint64_t news_from(std::uint64_t from) const;

  /// What came of a step. Of one that was known, also before it was gone back behind, the new result counts. False:
  /// that was another one. Those between steps() and this one are not known, whatever was before they were gone back
  /// behind.
  bool put(std::uint64_t step, const step_record& x);
  /// Of what is not behind `limit`, nor known already. Steps that were skipped are filled in. The first step whose
  /// result differs from what was known; none: there is none.
  std::optional<std::uint64_t> put(const loss_block& x, std::uint64_t limit = UINT64_MAX);
  /// What it knows counts, in every field; who knows no evaluation of the same result takes none away.
  void replace(const loss_block& x);
  /// Nothing happens if the step is not known.
  void evaluate(std::uint64_t step, double validation_loss);
  /// Those from this one on will be computed again.
  void go_back(std::uint64_t steps) { end_ = std::min(end_, steps); }
  /// Of the steps up to this one nothing is known, and perhaps never will be.
  void skip_to(std::uint64_t steps);
  /// Forgets whole blocks of the steps before.
  void drop_before(std::uint64_t step);

  /// Steps from `first` on: at most a block's, none behind steps(). `until`: nor behind that.
  loss_block part(std::uint64_t first, std::uint64_t until = UINT64_MAX) const;

  /// Of the known ones `points` at most (1 at least, a block's at most), evenly from `first` to the newest, which is
  /// among them; and how many steps lie from one to the next.
  std::pair<std::uint64_t, loss_block> thinned(std::uint64_t first, std::uint64_t points) const;

  /// Of the steps from `first` on whose version was evaluated `points` at most (1 at least, a block's at most), evenly
  /// to the newest, which is among them: each with its validation loss.
  std::vector<std::pair<std::uint64_t, double>> evaluations(std::uint64_t first, std::uint64_t points) const;

  /// Takes over a block, as it is stored; steps() is behind it then at least, as far as it is there.
  void share(std::uint64_t first, const loss_record& of);

  /// First steps of the blocks, as they are stored, that are other than in `before`: what is to be written if that was.
  std::vector<std::uint64_t> changed_since(const loss_record& before) const;

private:
  /// From its first step on; also of those that were gone back behind.
  struct block {
    std::vector<step_record> all;
    std::vector<std::uint16_t> evaluated; ///< which of them were, ascending

    void set(std::size_t at, const step_record& x);
  };

  block& changed(std::uint64_t number);
  void reach(std::uint64_t steps, std::uint64_t known_from);
  void share_all() const {
    if (!own_.empty()) // else it may be another thread's, too
      own_.clear();
  }
  const step_record* remembered(std::uint64_t step) const;
  /// How many steps of a block are not behind steps().
  std::uint64_t seen_of(std::uint64_t number, const block& x) const;

  std::map<std::uint64_t, std::shared_ptr<block>>
      blocks_; ///< by first step / loss_block_steps; those with a known step
  std::uint64_t end_ = 0;
  mutable std::set<std::uint64_t> own_; ///< blocks that nobody else has
};

} // namespace parcae
