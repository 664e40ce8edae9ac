#include "actors/conductor/conductor_machine.hpp"
#include "protocols/model/early_stop.hpp"

#include <algorithm>

// What keepers hold, and put on disk.

namespace parcae {

namespace {

constexpr double fastest_step = 10; ///< times the fastest reported: no step is faster
constexpr double least_step_ms = 0.02;

} // namespace

protect conductor::machine::protect_message(const slot_id& of, bool now) const {
  return {job_.id, protection_.shares(), permit_of(protection_.key(), of), now};
}

bool conductor::machine::share_layers() {
  return protection_.assign(roster_, generations_.last_grid ? &*generations_.last_grid : nullptr);
}

void conductor::machine::protect_all() {
  share_layers();
  for (const auto& [id, slot] : roster_.workers())
    send(id, protect_message(id, !protection_.shares().empty()));
  update_protection();
  fill_keepers();
}

void conductor::machine::fill_keepers() {
  for (auto& [from, what] : protection_.missing(roster_))
    send(from, std::move(what));
}

void conductor::machine::update_protection() {
  if (!protection_.update(roster_, chain_, course_.steps_done()) || protection_.newest().steps == 0)
    return;
  confirm_to_keepers();
  write_checkpoint();
}

void conductor::machine::confirm_to_keepers() {
  for (const auto& [id, slot] : roster_.keepers())
    confirm_to(id);
}

void conductor::machine::confirm_to(const slot_id& keeper) {
  // What one that comes back holds is old, but may be needed until it has got newer.
  const auto safe = roster_.find(keeper)->heard ? protection_.safe() : version{};
  // Generations that ended before that say nothing of what a keeper still holds, and grow in number.
  auto chain = chain_.links();
  std::erase_if(chain, [&](const auto& link) { return link.last < safe.steps; });
  send(keeper, confirm{job_.id, protection_.newest(), safe, std::move(chain), protection_.digests_asked()});
}

std::uint64_t conductor::machine::max_steps() const {
  auto most = course_.steps_done() + 2;
  if (const auto& current = generations_.current) {
    const std::chrono::duration<double, std::milli> time = now_ - current->begun_at;
    const auto least_ms = std::max(course_.shortest_ms().value_or(0) / fastest_step, least_step_ms);
    most = std::max(most, current->base + 2 + static_cast<std::uint64_t>(time.count() / least_ms));
  }
  return std::min(job_.specification.steps, most);
}

void conductor::machine::believe_again() {
  const auto since = *protection_.take_doubt();
  for (auto&& [id, slot] : roster_.keepers()) {
    const auto before = slot.held.size();
    if (before == slot.reported.size())
      continue;
    protection_.believe(slot, max_steps(), now_);
    if (slot.held.size() > before && !facts().is_over)
      keeper_has_news(id);
    if (protection_.is_doubtful() && now_ - since > job_.options.request_limit && protection_.tell_doubt())
      log(severity::warning, to_string(id) + " says that it holds versions that cannot have been committed yet");
  }
  if (protection_.is_doubtful())
    protection_.keep_doubt(since);
}

void conductor::machine::keeper_has_news(const slot_id& from) {
  update_protection();
  happens({trigger_kind::kept, from, "loss of what " + to_string(from) + " held"});
}

void conductor::machine::write_checkpoint(bool at_once) {
  if (const auto late = ledger_.give_up_late(now_))
    log(severity::warning, "the checkpoint of step " + std::to_string(late->steps) + " is given up");
  auto ids = roster_.keepers() | std::views::keys;
  const bool is_last = at_once || facts().is_final || manager_.ends_at;
  const auto& held = !is_last && protection_.had_copies() ? protection_.safe() : protection_.newest();
  // On a slow disk the next is due when one is written: who is under notice would be kept for one after the other.
  const bool stay = std::ranges::none_of(roster_.keepers(), [](const auto& x) { return x.second.leaving.has_value(); });
  // What comes of its evaluation goes to disk with it, unless somebody asked for it, or is about to go.
  const bool can_wait = !is_last && stay && !ledger_.is_asked();
  if (can_wait && may_be_last(held.steps, job_.specification) && !losses_.has_all_of(held.steps))
    return;
  if (const auto* what = ledger_.begin(now_, held, roster_.data_digest(), {ids.begin(), ids.end()}, stay))
    for (const auto& id : ids) {
      remind(id);
      send(id, *what);
    }
}

void conductor::machine::note_share(const std::optional<checkpoint_ledger::outcome>& x) {
  if (!x)
    return;
  if (x->good) {
    persist(x->text);
    write_checkpoint(); // if the next was due meanwhile
    happens({trigger_kind::written});
  } else {
    log(severity::warning, x->text);
    happens({trigger_kind::not_written, {}, x->text});
  }
}

} // namespace parcae
