#include "protocols/schedule/pass_schedule.hpp"

#include <algorithm>

namespace parcae {

namespace {

// Rows that may go into a pass.
std::uint32_t ready(const pass_schedule::request& x) {
  return x.known - x.sent;
}

pass_rows take(pass_schedule::request& x, std::uint32_t count) {
  const pass_rows result{x.id, x.sent, count, count == ready(x)};
  x.sent += count;
  return result;
}

} // namespace

pass_schedule::pass_schedule(const pass_limits& limits) : limits_(limits), passes_(limits.depth) {}

bool pass_schedule::has_room(std::uint32_t most) const {
  return requests_.size() < limits_.requests && most <= limits_.positions && positions_ <= limits_.positions - most;
}

void pass_schedule::enter(const request& x) {
  requests_.push_back(x);
  positions_ += x.most;
}

const std::vector<pass_rows>* pass_schedule::next() {
  if (is_full())
    return nullptr;
  auto& pass = passes_[(oldest_ + under_way_) % passes_.size()];
  pass.clear();
  const auto decode = decoding();
  const auto taken = add_decoding(pass, decode);
  const auto room = std::min(limits_.chunk, limits_.rows - taken);
  if (decode == 0)
    add_chunks(pass, room, UINT32_MAX);
  else
    add_chunks(pass, worth_padding(taken, room), replay_within_ - std::min(replay_within_, taken));
  if (pass.empty())
    return nullptr;
  ++under_way_;
  return &pass;
}

std::uint32_t pass_schedule::decoding() const {
  const auto all = static_cast<std::uint32_t>(std::ranges::count_if(requests_, [&](const auto& x) {
    return !waits(x) && ready(x) <= 1; // none: its token is on its way
  }));
  return std::min((all + limits_.depth - 1) / limits_.depth, limits_.rows);
}

std::uint32_t pass_schedule::add_decoding(std::vector<pass_rows>& pass, std::uint32_t most) {
  std::uint32_t taken = 0;
  for (auto x = requests_.begin(); x != requests_.end() && taken < most; ++x)
    if (!waits(*x) && ready(*x) == 1) {
      pass.push_back(take(*x, 1));
      ++taken;
    }
  return taken;
}

std::uint32_t pass_schedule::worth_padding(std::uint32_t taken, std::uint32_t room) const {
  if (limits_.sizes.empty())
    return room;
  std::uint32_t wanted = 0;
  for (auto x = requests_.begin(); x != requests_.end() && wanted < room; ++x)
    if (!waits(*x) && ready(*x) > 1)
      wanted += std::min(room - wanted, ready(*x));
  const auto rows = taken + wanted;
  const auto above = std::ranges::lower_bound(limits_.sizes, rows);
  if (above == limits_.sizes.begin() || above == limits_.sizes.end())
    return room;
  const auto below = *std::prev(above);
  return below > taken && rows - below < *above - rows ? below - taken : room;
}

void pass_schedule::add_chunks(std::vector<pass_rows>& pass, std::uint32_t room, std::uint32_t of_replays) {
  std::uint32_t taken = 0;
  for (auto x = requests_.begin(); x != requests_.end() && room > 0; ++x)
    if (!waits(*x) && ready(*x) > 1) {
      if (x->sent < x->was) // from here on, also for who comes later
        room = std::min(room, of_replays - std::min(of_replays, taken));
      const auto count = std::min(room, ready(*x));
      if (count == 0)
        continue;
      pass.push_back(take(*x, count));
      taken += count;
      room -= count;
    }
}

const std::vector<pass_schedule::request>& pass_schedule::done() {
  yielded_.clear();
  // Rows are in order of entry, but for the chunks behind those that decode: so each is found near the one before.
  std::size_t at = 0;
  bool any_over = false;
  for (const auto& rows : passes_[oldest_])
    for (std::size_t tried = 0; rows.yields && tried < requests_.size(); ++tried, ++at) {
      at = at < requests_.size() ? at : 0;
      if (requests_[at].id != rows.request)
        continue;
      auto& x = requests_[at];
      any_over |= ++x.known == x.most;
      yielded_.push_back(x);
      break;
    }
  oldest_ = (oldest_ + 1) % passes_.size();
  --under_way_;
  if (!any_over)
    return yielded_;
  std::erase_if(requests_, [&](const auto& x) {
    const bool is_over = x.known >= x.most;
    positions_ -= is_over ? x.most : 0;
    if (is_over && only_ == x.id)
      only_.reset();
    return is_over;
  });
  return yielded_;
}

void pass_schedule::leave(std::uint64_t id) {
  const auto x = std::ranges::find(requests_, id, &request::id);
  if (x == requests_.end())
    return;
  positions_ -= x->most;
  requests_.erase(x);
  if (only_ == id)
    only_.reset();
  for (std::size_t i = 0; i < under_way_; ++i) // it may enter again before they are over
    for (auto& rows : passes_[(oldest_ + i) % passes_.size()])
      rows.yields = rows.yields && rows.request != id;
}

std::uint64_t pass_schedule::rows_left() const {
  std::uint64_t result = 0;
  for (const auto& x : requests_)
    result += x.most - 1 - x.sent; // the last token is no row
  return result;
}

std::optional<std::size_t> pipeline_for(std::span<const pass_schedule* const> pipelines, std::uint32_t most) {
  std::optional<std::size_t> best;
  const auto load = [&](std::size_t i) {
    return std::pair(pipelines[i]->requests().size(), pipelines[i]->rows_left());
  };
  for (std::size_t i = 0; i < pipelines.size(); ++i)
    if (pipelines[i]->has_room(most) && (!best || load(i) < load(*best)))
      best = i;
  return best;
}

} // namespace parcae
