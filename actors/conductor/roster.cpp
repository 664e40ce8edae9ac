#include "actors/conductor/roster.hpp"

#include "protocols/base/back_off.hpp"

#include <algorithm>
#include <utility>

namespace parcae {

slot_state* roster::find(const slot_id& id) {
  const auto it = slots_.find(id);
  return it == slots_.end() ? nullptr : &it->second;
}

const slot_state* roster::find(const slot_id& id) const {
  const auto it = slots_.find(id);
  return it == slots_.end() ? nullptr : &it->second;
}

slot_state& roster::join(const slot_id& id, time_point now, const std::string& kind) {
  leaving_.erase(id);
  kinds_.erase(id);
  if (!kind.empty())
    kinds_[id] = kind;
  auto& slot = slots_[id] = {};
  slot.past.age = ++arrivals_;
  slot.past.came = now;
  const auto newest = lost_lives_ | std::views::reverse;
  const auto before = std::ranges::find_if(
      newest, [&](const auto& x) { return x.slot.instance == id.instance && x.slot.index == id.index; });
  if (before != newest.end()) {
    slot.past.lost = before->at;
    slot.past.short_lives = before->short_lives;
  }
  return slot;
}

void roster::lose(const slot_id& id, time_point now) {
  const auto it = slots_.find(id);
  const auto& slot = it->second;
  const auto& commanded = slot.commanded; // of what a manager before has prepared the newest may be told to go on
  if (slot.keeper || commanded.prepared != generation{} || commanded.activated != generation{}) { // else it had nothing
    lost_lives_.push_back({id, commanded, now, now - slot.past.came < short_life ? slot.past.short_lives + 1 : 0});
    if (lost_lives_.size() > lives_remembered)
      lost_lives_.pop_front();
  }
  slots_.erase(it);
  kinds_.erase(id);
  leaving_.erase(id);
}

std::optional<generations_commanded> roster::come_back(const slot_id& id) {
  const auto known = std::ranges::find(lost_lives_, id, &lost_life::slot);
  if (known == lost_lives_.end())
    return {};
  auto commanded = known->commanded;
  commanded.released = {}; // it may not have arrived
  slots_.at(id).commanded = commanded;
  lost_lives_.erase(known);
  return commanded;
}

void roster::leaves(const slot_id& id, time_point expires) {
  slots_.at(id).leaving = expires;
  leaving_.insert(id);
}

bool roster::exclude(slot_state& slot, time_point until) {
  if (slot.excluded_for_good())
    return false;
  slot.excluded = until;
  slot.asked_back = false;
  look_again_at(until);
  return true;
}

void roster::refuse_new_place(slot_state& slot, time_point now) {
  slot.no_new_place = now + next_back_off(slot);
  look_again_at(*slot.no_new_place);
}

bool roster::hold_back(slot_state& slot, time_point now) {
  if (slot.past.short_lives < 2)
    return false;
  const auto until = *slot.past.lost + back_off{first_back_off_, longest_back_off}.after(slot.past.short_lives - 1);
  if (until <= now)
    return false;
  slot.no_new_place = until;
  look_again_at(until);
  return true;
}

void roster::allow_new_places() {
  for (auto& [id, slot] : slots_)
    if (std::exchange(slot.no_new_place, {}))
      slot.unused_because.clear();
}

void roster::forgive() {
  for (auto& [id, slot] : slots_)
    if (!slot.excluded && !slot.no_new_place && (slot.keeper || slot.loaded))
      slot.back_off = milliseconds(0);
}

roster::milliseconds roster::next_back_off(slot_state& slot) const {
  return slot.back_off = back_off{first_back_off_, longest_back_off}.next(slot.back_off);
}

void roster::look_again_at(time_point t) {
  if (t != time_point::max())
    next_return_ = std::min(next_return_.value_or(t), t);
}

void roster::find_next_return() {
  next_return_.reset();
  for (const auto& [id, slot] : slots_)
    for (const auto& t : {slot.excluded, slot.no_new_place})
      if (t)
        look_again_at(*t);
}

std::uint32_t roster::usable() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(slots_, [](const auto& x) { return x.second.usable(); }));
}

bool roster::loading() const {
  return std::ranges::any_of(workers(), [](const auto& x) { return !x.second.loaded && !x.second.excluded; });
}

std::string roster::data_problem_of_all() const {
  std::string problem;
  for (const auto& [id, slot] : workers()) {
    if (data_found_ || slot.data_problems < data_attempts)
      return {};
    problem = slot.data_problem;
  }
  return problem;
}

bool roster::agrees(const std::string& data_digest) {
  if (data_digest_.empty())
    data_digest_ = data_digest;
  const bool same = data_digest_ == data_digest;
  data_found_ |= same;
  return same;
}

std::optional<slot_id> roster::differs_wholly(const slot_id& id, const std::string& whole_digest) {
  if (!whole_digest_)
    whole_digest_ = {id, whole_digest};
  return whole_digest_->second == whole_digest ? std::nullopt : std::optional(whole_digest_->first);
}

std::vector<participant> roster::snapshot_targets() const {
  std::vector<participant> staying, leaving;
  for (const auto& [id, slot] : keepers())
    if (slot.heard)
      (slot.leaving ? leaving : staying).push_back(slot.where);
  return staying.empty() ? leaving : staying;
}

std::vector<holder> roster::holders(bool hoping) const {
  std::vector<holder> result;
  for (const auto& [id, slot] : slots_)
    if (!slot.excluded || (hoping && !slot.excluded_for_good() && slot.back_off <= returns_awaited * first_back_off_))
      result.push_back({id, slot.keeper, slot.held});
  return result;
}

std::size_t roster::machine_count() const {
  std::set<std::string> known;
  std::size_t alone = 0;
  for (const auto& [id, slot] : slots_)
    if (slot.machine.id.empty())
      ++alone;
    else
      known.insert(slot.machine.id);
  return alone + known.size();
}

std::vector<const slot_state*> roster::training_slots() const {
  const bool some_stay = usable() > 0;
  std::vector<const slot_state*> result;
  for (const auto& [id, slot] : workers())
    if (some_stay ? slot.usable() : slot.loaded && slot.leaving && !slot.excluded)
      result.push_back(&slot);
  return result;
}

std::map<std::string, roster::shared_machine> roster::machines() const {
  std::map<std::string, shared_machine> result;
  for (const auto* slot : training_slots())
    if (!slot->machine.id.empty()) {
      auto& x = result[slot->machine.id];
      ++x.slots;
      x.facts = slot->machine;
    }
  return result;
}

slot_memory roster::memory() const {
  slot_memory least;
  for (const auto* slot : training_slots())
    least = least_of(least, slot->memory);
  if (!least.of_device)
    for (const auto& [id, x] : machines()) // each node on it may think that it has all of it
      least = least_of(least, {x.facts.bytes / x.slots});
  return least;
}

void roster::tell_of_busiest_machine(platform_cost& to, std::uint32_t threads) const {
  double most = 0;
  for (const auto& [id, x] : machines())
    if (const auto load = static_cast<double>(x.slots) / x.facts.cores; x.facts.cores > 0 && load > most) {
      most = load;
      to.machine_slots = x.slots;
      to.machine_cores = threads > 0 ? static_cast<double>(x.facts.cores) / threads : x.slots;
    }
}

std::uint32_t roster::side_by_side(const placement& grid) const {
  std::map<std::string, std::uint32_t> ranks;
  std::uint32_t most = 1;
  for (std::uint32_t rank = 0; rank < grid.ranks(); ++rank)
    if (const auto* slot = find(grid.participants[rank].slot); slot && !slot->machine.id.empty())
      most = std::max(most, ++ranks[slot->machine.id]);
  return most;
}

std::string roster::kind_of(const placement& grid) const {
  std::set<std::string> kinds;
  for (std::uint32_t rank = 0; rank < grid.ranks(); ++rank)
    if (const auto known = kinds_.find(grid.participants[rank].slot); known != kinds_.end())
      kinds.insert(known->second);
  std::string result;
  for (const auto& x : kinds)
    result += (result.empty() ? "" : "+") + x;
  return result;
}

} // namespace parcae
