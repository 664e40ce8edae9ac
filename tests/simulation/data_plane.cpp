#include "tests/simulation/data_plane.hpp"

#include <algorithm>
#include <utility>

namespace parcae::simulation {

namespace {

constexpr nanoseconds connect_limit = 10s;
constexpr nanoseconds cut_noticed = 4s; ///< probes of the kernel

} // namespace

std::size_t data_plane::trained() const {
  return static_cast<std::size_t>(std::ranges::count_if(sessions_, [](const auto& x) {
    const auto& ends = x.second.ends;
    return std::any_of(ends.begin(), ends.begin() + x.second.grid.ranks(), [](const auto* end) { return end; });
  }));
}

data_plane::session* data_plane::find(generation g) {
  const auto known = sessions_.find(g);
  return known == sessions_.end() ? nullptr : &known->second;
}

data_end* data_plane::end_of(generation g, std::uint32_t participant) {
  const auto* s = find(g);
  return s ? s->ends[participant] : nullptr;
}

bool data_plane::is_apart(const session& s, const data_end& x) const {
  const auto count = s.trains ? s.grid.ranks() : s.ends.size(); // those who only sent shards are not needed for steps
  return cut_.contains(x.process->name) && std::any_of(s.ends.begin(), s.ends.begin() + count, [&](const auto* each) {
           return each && each->process != x.process;
         });
}

bool data_plane::remove(data_end& x) {
  const bool last = std::erase_if(ends_, [&](const auto& each) { return each.second == &x; }) > 0;
  std::vector<generation> of;
  for (const auto& [g, s] : sessions_)
    if (std::ranges::find(s.ends, &x) != s.ends.end())
      of.push_back(g);
  for (const auto g : of)
    close(g, x);
  return last;
}

void data_plane::connect(const prepare& plan, data_end& x) {
  const auto g = plan.next;
  auto& s = sessions_[g];
  if (s.ends.empty()) {
    s.grid = plan.target;
    s.ends.resize(plan.target.participants.size());
  }
  for (std::uint32_t i = 0; i < s.ends.size(); ++i)
    if (plan.target.participants[i].slot == x.slot && !s.closed.contains(i))
      s.ends[i] = &x;
  engine_.after(x.process, connect_limit, [this, g, slot = x.slot] {
    const auto* s = find(g);
    if (!s || s->complete)
      return;
    const auto missing = std::ranges::find(s->ends, nullptr) - s->ends.begin();
    for (auto* each : s->ends)
      if (each && each->slot == slot)
        return each->on_unreachable(g, static_cast<std::uint32_t>(missing));
  });
  const bool reached = std::ranges::none_of(s.ends, [&](const auto* each) { return !each || is_apart(s, *each); });
  if (!reached || s.complete)
    return;
  s.complete = true;
  for (std::uint32_t i = 0; i < s.ends.size(); ++i)
    pass(g, i, [g](data_end& each) { each.on_connected(g); });
}

void data_plane::close(generation g, const data_end& x) {
  auto* s = find(g);
  if (!s)
    return;
  const auto peer = static_cast<std::uint32_t>(std::ranges::find(s->ends, &x) - s->ends.begin());
  if (peer == s->ends.size())
    return;
  s->ends[peer] = nullptr;
  s->closed.insert(peer);
  if (std::ranges::all_of(s->ends, [](const auto* each) { return !each; })) {
    sessions_.erase(g);
    return;
  }
  if (s->complete) // what is under way arrives first
    for (std::uint32_t i = 0; i < s->ends.size(); ++i)
      if (s->ends[i])
        engine_.after(options_.message + delay(), [=, this] { tell_closed(g, i, peer); });
}

void data_plane::tell_closed(generation g, std::uint32_t whom, std::uint32_t peer) {
  if (const auto* end = end_of(g, whom))
    engine_.after(end->process, delay(), [=, this] {
      if (auto* end = end_of(g, whom))
        end->on_closed(g, peer);
    });
}

void data_plane::pass(generation g, std::uint32_t to, std::function<void(data_end&)> what) {
  const auto* end = end_of(g, to);
  if (!end)
    return;
  engine_.after(end->process, delay(), [this, g, to, what = std::move(what)] {
    auto* end = end_of(g, to);
    if (end && !is_apart(*find(g), *end))
      what(*end);
  });
}

nanoseconds data_plane::time_of(const process_ptr& from, std::uint32_t layer) const {
  const auto slow = slow_.find(from->name);
  return (layer < options_.shards.size() ? options_.shards[layer] : 0ns) + (slow == slow_.end() ? 0ns : slow->second);
}

nanoseconds data_plane::move(generation g, const shard_move& what, const layer_state& x, bool late) {
  const auto* source = end_of(g, what.source);
  if (!source)
    return 0ns;
  auto& free = find(g)->sent[what.source];
  free = std::max(free, engine_.now()) + time_of(source->process, what.layer) * (late ? 2 : 1) / 3; // two moments
  const auto takes = free - engine_.now();
  engine_.after(source->process, takes, [=, this] {
    if (end_of(g, what.source)) // what was not sent yet ends with the connection
      pass(g, what.destination, [=](data_end& each) { each.on_shard(g, what.layer, x, late); });
  });
  return takes;
}

void data_plane::feed(generation g, std::uint32_t from, std::uint32_t to, const fed& x) {
  auto* s = find(g);
  if (!s || !s->ends[from])
    return;
  auto& line = s->fed[{from, to}];
  const bool is_base = x.what == fed::kind::base;
  line.free = std::max(line.free, engine_.now()) + delay() + (is_base ? time_of(s->ends[from]->process, x.layer) : 0ns);
  line.under_way.push_back(x);
  engine_.after(line.free - engine_.now(), [=, this] { bring_fed(g, from, to); });
}

// While it is cut off it waits.
void data_plane::bring_fed(generation g, std::uint32_t from, std::uint32_t to) {
  auto* end = end_of(g, to);
  if (!end || !end_of(g, from))
    return;
  if (is_apart(*find(g), *end) || is_apart(*find(g), *end_of(g, from)))
    return engine_.after(50ms, [=, this] { bring_fed(g, from, to); });
  engine_.after(end->process, 0ns, [=, this] { // one that thaws may come here before the one before it
    auto* end = end_of(g, to);
    if (!end)
      return;
    auto& line = find(g)->fed[{from, to}].under_way;
    const auto x = line.front();
    line.pop_front();
    end->on_fed(g, from, x);
  });
}

void data_plane::begin(generation g, std::uint32_t rank, const joint_work& what) {
  auto* s = find(g);
  if (!s || !s->complete)
    return;
  s->trains = true;
  auto& begun = s->begun[what];
  begun.insert(rank);
  const bool is_broken = !s->closed.empty() && *s->closed.begin() < s->grid.ranks(); // who had begun may be gone
  if (begun.size() < s->grid.ranks() || is_broken)
    return;
  s->begun.erase(what);
  if (!what.evaluates)
    witness_.begins(g, what.step);
  for (std::uint32_t r = 0; r < s->grid.ranks(); ++r)
    if (const auto* end = s->ends[r])
      engine_.after(end->process, options_.step * 3 / 4 + engine_.chance().between(0ns, options_.step / 2), [=, this] {
        if (auto* end = end_of(g, r); end && !is_apart(*find(g), *end))
          end->on_computed(g, what);
      });
}

void data_plane::tell(generation g, std::uint32_t rank, const joint_work& what, const wishes& x) {
  const auto* s = find(g);
  if (!s || !s->ends[rank])
    return;
  nanoseconds later = 0ns; // one after the other: who dies has told some
  for (std::uint32_t r = 0; r < s->grid.ranks(); ++r)
    if (r != rank)
      engine_.after(s->ends[rank]->process, later += engine_.chance().between(0ns, 500us), [=, this] {
        if (end_of(g, rank))
          pass(g, r, [=](data_end& each) { each.on_told(g, what, x); });
      });
}

void data_plane::send_caches(generation g, std::uint32_t to, std::uint32_t move, stage_caches::content all) {
  pass(g, to, [=](data_end& each) { each.on_caches(g, move, all); });
}

data_end* data_plane::reached(const slot_id& slot) const {
  const auto known = ends_.find(slot);
  return known == ends_.end() || cut_.contains(known->second->process->name) ? nullptr : known->second;
}

void data_plane::bring_pass(const slot_id& to, std::function<void(data_end*)> arrives) {
  if (const auto* end = reached(to))
    engine_.after(end->process, delay(), [this, to, arrives = std::move(arrives)] { arrives(reached(to)); });
  else
    engine_.after(delay(), [arrives = std::move(arrives)] { arrives(nullptr); });
}

void data_plane::bring(const process_ptr& from, const slot_id& keeper, std::shared_ptr<parcel> what,
                       std::weak_ptr<void> wanted) {
  nanoseconds takes = 0ns;
  for (const auto& [layer, x] : what->layers)
    takes += time_of(from, layer);
  takes = std::chrono::duration_cast<nanoseconds>(takes / what->share_of_link);
  what->under_way = ends_.contains(keeper) && !cut_.contains(from->name);
  engine_.after(from, takes + delay(), [=, this] {
    const auto known = ends_.find(keeper);
    if (wanted.expired())
      return;
    const auto again = [=, this] {
      what->under_way = false;
      engine_.after(from, engine_.chance().between(20ms, 1s), [=, this] { bring(from, keeper, what, wanted); });
    };
    if (known == ends_.end() || cut_.contains(from->name) || cut_.contains(known->second->process->name))
      return again();
    engine_.after(known->second->process, delay(), [=, this] {
      const auto there = ends_.find(keeper);
      if (there == ends_.end() || !there->second->takes(*what))
        again();
    });
  });
}

// Whoever waits for one that is cut off waits until that is noticed. What was under way is lost with the connections.
void data_plane::cut(const process_ptr& p) {
  if (!cut_.insert(p->name).second)
    return;
  engine_.after(cut_noticed, [this, p] {
    for (const auto& [g, s] : sessions_)
      for (std::uint32_t i = 0; s.complete && i < s.ends.size(); ++i)
        for (std::uint32_t j = 0; s.ends[i] && j < s.ends.size(); ++j)
          if (s.ends[j] && i != j && (s.ends[i]->process == p || s.ends[j]->process == p) &&
              s.ends[i]->process != s.ends[j]->process)
            tell_closed(g, i, j);
  });
}

void data_plane::heal(const process_ptr& p) {
  cut_.erase(p->name);
}

} // namespace parcae::simulation
