#include "protocols/choreography/choreography.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace parcae {

namespace {

// FNV-1a over a canonical byte sequence: enough to notice that two builds or two plans differ, which is all it is for.
struct hasher {
  std::uint64_t state = 0xcbf29ce484222325;

  void bytes(std::string_view x) {
    for (unsigned char c : x)
      state = (state ^ c) * 0x100000001b3;
    number(x.size());
  }

  void number(std::uint64_t x) {
    for (int i = 0; i < 8; ++i)
      state = (state ^ (x >> (8 * i) & 0xff)) * 0x100000001b3;
  }
};

} // namespace

std::vector<std::uint32_t> lacking_layers(const prepare& x, std::uint32_t rank, const inventory& held,
                                          const version& at) {
  std::vector<std::uint32_t> result;
  const auto stage = x.target.stage_of(rank);
  for (auto layer = x.target.first_layer[stage]; layer < x.target.first_layer[stage + 1]; ++layer) {
    const auto brings = [&](const shard_move& m) { return m.layer == layer && m.destination == rank; };
    if (std::ranges::none_of(x.moves, brings) && std::ranges::count(held, layer_version{layer, at}) == 0)
      result.push_back(layer);
  }
  return result;
}

std::string problem_of_caches(const prepare& x) {
  const auto& grid = x.target;
  const auto layers = grid.first_layer.empty() ? 0 : grid.first_layer.back();
  const auto is_good = [&](const cache_move& c) {
    return c.first_layer < c.last_layer && c.last_layer <= layers && c.source < grid.participants.size() &&
           c.destination < grid.ranks() && c.destination < grid.participants.size() && c.source != c.destination;
  };
  if (x.caches.size() > std::size_t{layers} * grid.participants.size())
    return std::to_string(x.caches.size()) + " moves of caches";
  const auto bad = std::ranges::find_if_not(x.caches, is_good);
  if (bad == x.caches.end())
    return {};
  return "caches of layers " + std::to_string(bad->first_layer) + " to " + std::to_string(bad->last_layer) +
         " cannot go from participant " + std::to_string(bad->source) + " to " + std::to_string(bad->destination);
}

std::uint64_t checksum_of(const prepare& x) {
  hasher h;
  h.number(x.next.value);
  h.number(x.job.value);
  h.number(x.specification.seed);
  h.number(x.specification.steps);
  h.bytes(x.specification.model.kind);
  h.number(x.target.width);
  h.number(x.target.depth);
  for (auto layer : x.target.first_layer)
    h.number(layer);
  for (const auto& p : x.target.participants) {
    h.bytes(p.slot.instance);
    h.number(p.slot.life.value);
    h.number(p.slot.index);
  }
  for (const auto& m : x.moves) {
    h.number(m.layer);
    h.number(m.source);
    h.number(m.destination);
  }
  for (const auto& c : x.caches)
    for (const auto each : {c.first_layer, c.last_layer, c.source, c.destination})
      h.number(each);
  return h.state;
}

std::chrono::milliseconds progress_interval(std::uint32_t ranks) {
  return std::chrono::milliseconds(std::clamp<std::uint32_t>(5 * ranks, 200, 10'000));
}

} // namespace parcae
