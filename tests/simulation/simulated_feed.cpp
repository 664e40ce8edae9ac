#include "protocols/choreography/choreography.hpp"
#include "tests/simulation/simulated_worker.hpp"

#include <algorithm>
#include <utility>

// Layers of a simulated worker that go ahead of a change, or come.

namespace parcae::simulation {

void simulated_worker::do_one(const worker_effects::warm& x) {
  auto& it = parts_.at(x.of);
  it.is_warm = true;
  if (around_.time.chance().percent(2)) // memory, say
    around_.time.after(process, around_.time.chance().between(0ms, 200ms), [this, g = x.of.number, alive = alive_] {
      if (*alive)
        not_fed(g, failure::computation);
    });
  if (machine_.trains() && current()->is_whole)
    feed(it, {});
  look_whether_warm(it);
}

void simulated_worker::do_one(const worker_effects::keep_followed& x) {
  kept_of_ = x.of.number;
  kept_.clear();
  if (const auto known = parts_.find(x.of); known != parts_.end())
    for (const auto& [layer, y] : std::exchange(known->second.followed, {})) {
      around_.sees.object(problem_with_bits(layer, y.at, y.bits)); // of a rank, at that version
      store_[layer] = y;
      kept_.push_back({layer, y.at});
    }
  store_changed();
  do_all(machine_.kept_followed(x.of, held()));
}

void simulated_worker::not_fed(generation g, failure kind) {
  if (const auto* x = find(g))
    do_all(machine_.not_fed(x->id(), kind, "it cannot be fed"));
}

void simulated_worker::feed(part& to, std::optional<std::uint64_t> step) {
  auto& chance = around_.time.chance();
  std::uint32_t begun = 0;
  for (const auto& move : to.what.moves) {
    const auto known = store_.find(move.layer);
    const std::pair which(move.layer, move.destination);
    if (move.source != to.self || to.cold.contains(which) || known == store_.end())
      continue;
    const auto say = [&](fed y) {
      y.layer = move.layer;
      around_.plane.feed(to.what.next, to.self, move.destination, y);
    };
    if (to.feeds.contains(which)) {
      if (chance.percent(5)) { // the link is too slow for it
        to.cold.insert(which);
        say({.what = fed::kind::cold});
      } else if (step) {
        say({.what = fed::kind::step, .at = known->second.at, .step = *step});
      }
    } else if (begun++ == 0 || chance.percent(50)) {
      to.feeds.insert(which);
      say({.what = fed::kind::base, .state = known->second});
    }
  }
  for (const auto& which : to.cold)
    to.feeds.erase(which);
}

void simulated_worker::end_feed(part& x, const version& at) {
  if (!x.is_warm)
    return;
  std::set<std::uint32_t> destinations;
  for (const auto& move : x.what.moves)
    if (move.source == x.self && destinations.insert(move.destination).second)
      around_.plane.feed(x.what.next, x.self, move.destination, {.what = fed::kind::end, .at = at});
}

void simulated_worker::on_fed(generation g, std::uint32_t from, const fed& y) {
  auto* x = find(g);
  if (!x)
    return;
  if (y.what == fed::kind::base) {
    x->followed[y.layer] = y.state;
  } else if (y.what == fed::kind::cold) {
    x->followed.erase(y.layer);
    x->cold.emplace(y.layer, x->self);
  } else if (y.what == fed::kind::step) {
    auto& layer = x->followed.at(y.layer);
    layer = {y.at, trained_bits(layer.bits, y.layer, y.step)};
  } else {
    for (const auto& move : x->what.moves) {
      const auto known = x->followed.find(move.layer);
      if (move.source != from || move.destination != x->self || known == x->followed.end())
        continue;
      if (known->second.at != y.at)
        around_.sees.object(to_string(slot) + " followed layer " + std::to_string(move.layer) + " to " +
                            to_string(known->second.at) + ", and not to " + to_string(y.at));
      on_shard(g, move.layer, known->second, true);
    }
    return;
  }
  look_whether_warm(*x);
}

void simulated_worker::look_whether_warm(part& x) {
  const auto lacks = [&](const shard_move& y) {
    return y.destination == x.self && !x.followed.contains(y.layer) && !x.cold.contains({y.layer, x.self});
  };
  if (!x.is_warm || x.said_warm || std::ranges::any_of(x.what.moves, lacks))
    return;
  x.said_warm = true;
  around_.time.after(process, around_.time.chance().between(0ms, around_.wake), [this, of = x.id(), alive = alive_] {
    if (*alive)
      do_all(machine_.warmed(of, 0, 0));
  });
}

} // namespace parcae::simulation
