#include "actors/manager/loss_journal.hpp"

#include "actors/manager/journal_store.hpp"

#include <algorithm>

namespace parcae {

std::string losses_name(job_id job, std::uint64_t first) {
  return name_in_journal(job, losses_part) + std::to_string(first);
}

loss_journal::loss_journal(job_id job, const journaled_losses& known) : job_(job), written_(known.all) {
  for (const auto first : known.pieces)
    pieces_[first - first % loss_block_steps].insert(first);
}

bool loss_journal::only_adds(std::uint64_t first, const loss_record& all) const {
  const auto before = written_.part(first), now = all.part(first);
  return before.all.size() < now.all.size() &&
         std::ranges::equal(before.all.begin(), before.all.end(), now.all.begin(),
                            now.all.begin() + static_cast<std::ptrdiff_t>(before.all.size()),
                            [](const auto& a, const auto& b) { return a.same(b); });
}

void loss_journal::write_whole(std::uint64_t first, const loss_record& all, std::uint32_t samples,
                               std::vector<journal_entry>& to) {
  auto& pieces = pieces_[first];
  for (const auto piece : pieces)
    if (piece != first)
      erase(piece, to);
  auto block = all.part(first);
  block.samples = samples;
  to.push_back({losses_name(job_, first), encode(block)});
  pieces = {first};
}

void loss_journal::erase(std::uint64_t piece, std::vector<journal_entry>& to) {
  to.push_back({losses_name(job_, piece), {}});
  erased_.emplace_back(told_, piece);
}

void loss_journal::written(std::uint64_t told) {
  while (!erased_.empty() && erased_.front().first <= told)
    erased_.pop_front();
}

void loss_journal::forget() {
  written_ = {};
  for (const auto& [told, piece] : erased_)
    pieces_[piece - piece % loss_block_steps].insert(piece);
  erased_.clear();
}

std::vector<journal_entry> loss_journal::news(const loss_record& all, std::uint32_t samples, bool last) {
  std::vector<journal_entry> result;
  ++told_;
  const auto has_room_for = [&](std::size_t n) { return result.empty() || result.size() + n <= max_values; };
  for (auto i = pieces_.lower_bound(all.steps()); i != pieces_.end(); i = pieces_.erase(i)) { // gone back behind
    if (!has_room_for(i->second.size()))
      return result;
    for (const auto piece : i->second)
      erase(piece, result);
  }
  auto changed = all.changed_since(written_);
  if (const auto tail = pieces_.empty() ? 0 : pieces_.rbegin()->first;
      last && changed.empty() && !pieces_.empty() && pieces_.rbegin()->second.size() > 1)
    changed.push_back(tail);
  std::size_t whole = 0;
  bool all_written = true;
  for (const auto first : changed) {
    const auto known = std::max(first, std::min(written_.steps(), first + loss_block_steps));
    const bool is_whole = all.steps() >= first + loss_block_steps;
    const bool is_anew = known == first && !pieces_[first].empty(); // pieces of it may be there, of other results
    if (last || is_whole || is_anew || !only_adds(first, all) || pieces_[first].size() >= max_pieces) {
      if (++whole > max_blocks || !has_room_for(pieces_[first].size() + 1)) {
        all_written = false;
        break;
      }
      write_whole(first, all, samples, result);
    } else {
      auto piece = all.part(known);
      piece.samples = samples;
      result.push_back({losses_name(job_, known), encode(piece)});
      pieces_[first].insert(known);
    }
    written_.share(first, all);
  }
  if (all_written)
    written_.go_back(all.steps());
  return result;
}

} // namespace parcae
