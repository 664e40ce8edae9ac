#include "tests/simulation/observed.hpp"

#include "gpu/keeper/shard_store.hpp"
#include "protocols/model/early_stop.hpp"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <variant>

namespace parcae::simulation {

namespace {

std::uint64_t mixed(std::uint64_t x) { // SplitMix64's finaliser
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::string name_of(generation g) {
  return "generation " + std::to_string(g.value);
}

const chain_link* link_of(const std::vector<chain_link>& chain, generation g) {
  const auto found = std::ranges::find(chain, g, &chain_link::by);
  return found == chain.end() ? nullptr : &*found;
}

bool is_open(const chain_link& x) {
  return x.last == UINT64_MAX;
}

// A pipeline of it has said so, all of it.
bool is_served(const generation_history& x) {
  for (std::uint32_t pipeline = 0; pipeline < x.grid.width; ++pipeline) {
    std::uint32_t stage = 0;
    while (stage < x.grid.depth && x.serving.contains(x.grid.participants[x.grid.rank(pipeline, stage)].slot))
      ++stage;
    if (stage == x.grid.depth)
      return true;
  }
  return false;
}

// Not later than what an ended generation made, and what keepers could have said of it when they were last asked.
std::uint64_t sure_before_cut(const observed& seen, const chain_link& was) {
  const auto known = seen.generations.find(was.by);
  const auto asked = known == seen.generations.end() ? std::nullopt : known->second.sure_when_asked;
  return std::min(was.last, asked.value_or(was.last));
}

std::string right_digest(std::uint32_t layer, std::uint64_t steps) {
  const version at{steps, {1}};
  shard_store store;
  store.add(shard_with(layer, at, right_bits(layer, steps)), {});
  return store.digests(at).front().sha256;
}

struct command_check {
  const observed& seen;
  const slot_id& to;

  std::string operator()(const prepare& x) const {
    if (x.next > seen.durable.reserved)
      return name_of(x.next) + " is prepared before its number is in the journal";
    const auto known = seen.generations.find(x.next);
    if (known != seen.generations.end() && known->second.checksum != checksum_of(x))
      return name_of(x.next) + " is prepared with two plans";
    return {};
  }

  std::string operator()(const activate& x) const {
    const auto* link = link_of(seen.durable.chain, x.next);
    if (!link || seen.durable.chain.back().by != x.next || !is_open(*link))
      return name_of(x.next) + " is activated, and the journal does not have it as begun";
    if (link->base != x.at.steps)
      return name_of(x.next) + " is activated at " + to_string(x.at) + ", the journal has " +
             std::to_string(link->base);
    return {};
  }

  std::string operator()(const decide& x) const {
    const auto* link = link_of(seen.durable.chain, x.current);
    if (link ? is_open(*link) : x.result.step != no_step) // none: all that it made is void
      return "a decision on " + name_of(x.current) + " is told before the journal has it";
    if (link && x.result.step != no_step && link->last != x.result.step + 1)
      return name_of(x.current) + " is told to apply step " + std::to_string(x.result.step) + ", and ends at " +
             std::to_string(link->last) + " in the journal";
    return {};
  }

  std::string operator()(const release& x) const {
    const auto known = seen.generations.find(x.current);
    if (known == seen.generations.end() || (seen.serves ? !is_served(known->second) : known->second.applied.empty()))
      return "shards are released before " + name_of(x.current) + " has committed a step";
    return {};
  }

  std::string operator()(const route& x) const {
    const auto known = seen.generations.find(x.current);
    if (!seen.serves)
      return "a gateway is told of a job that trains";
    if (x.target.width == 0)
      return {};
    if (known == seen.generations.end() || !known->second.base || known->second.grid != x.target)
      return "a gateway is told of " + name_of(x.current) + ", which does not serve";
    if (const auto* link = link_of(seen.durable.chain, x.current); !link || !is_open(*link))
      return "a gateway is told of " + name_of(x.current) + ", which has ended in the journal";
    return x.sizes.empty() ? "a gateway is told of no sizes of passes" : "";
  }

  std::string operator()(const confirm& x) const {
    for (std::uint32_t layer = 0; x.newest.steps > 0 && layer < seen.layers; ++layer)
      if (!seen.ever_kept.contains({layer, x.newest}))
        return "version " + to_string(x.newest) + " is confirmed, and no keeper ever had its layer " +
               std::to_string(layer);
    return {};
  }

  std::string operator()(const abort_generation& x) const {
    const auto known = seen.generations.find(x.current);
    const auto* link = link_of(seen.durable.chain, x.current);
    if (!link || !is_open(*link) || seen.durable.over || known == seen.generations.end())
      return {};
    const auto& g = known->second;
    // What had stopped under a manager before trains no more: its state is taken from who is there.
    const bool was_stopped = g.stopped && g.prepared_under != seen.managers;
    if (g.base && !g.disturbed && !was_stopped && seen.pristine.contains(to))
      return name_of(x.current) + " is aborted, and nothing had happened to its ranks";
    return {};
  }

  std::string operator()(const auto&) const { return {}; }
};

} // namespace

std::uint64_t surely_held(const observed& seen, generation g, std::uint64_t last, std::uint64_t newest) {
  std::map<std::uint64_t, std::set<std::uint32_t>> layers;
  for (const auto& [slot, said] : seen.heard) {
    if (!seen.pristine.contains(slot))
      continue;
    const auto held = seen.held.find(slot);
    if (!said && held == seen.held.end())
      continue;
    for (const auto& x : said ? *said : held->second)
      if (x.at.by == g && x.at.steps > last && x.at.steps <= newest)
        layers[x.at.steps].insert(x.layer);
  }
  std::uint64_t result = last;
  for (const auto& [steps, x] : layers)
    if (x.size() == seen.layers)
      result = std::max(result, steps);
  return result;
}

std::uint64_t initial_bits(std::uint32_t layer) {
  return mixed(layer + 1);
}

std::uint64_t trained_bits(std::uint64_t before, std::uint32_t layer, std::uint64_t step) {
  return mixed(before ^ mixed(layer ^ mixed(step)));
}

double validation_loss_of(std::uint64_t steps) {
  return static_cast<double>(mixed(steps) % 1000);
}

std::uint64_t last_version(const job_specification& job) {
  validation_course course;
  for (std::uint64_t steps = 0; steps < job.steps; ++steps)
    if (is_evaluated(steps, job) && ends(course = after(course, validation_loss_of(steps), job), job))
      return steps;
  return job.steps;
}

std::uint64_t right_bits(std::uint32_t layer, std::uint64_t steps) {
  auto result = initial_bits(layer);
  for (std::uint64_t step = 0; step < steps; ++step)
    result = trained_bits(result, layer, step);
  return result;
}

std::shared_ptr<const shard_bytes> shard_with(std::uint32_t layer, const version& at, std::uint64_t bits,
                                              bool has_course) {
  std::vector<std::byte> bytes(sizeof bits);
  std::memcpy(bytes.data(), &bits, sizeof bits);
  shard_bytes result{layer, at, {std::move(bytes)}};
  if (has_course)
    result.parts.push_back(bytes_of(validation_course{}));
  return std::make_shared<const shard_bytes>(std::move(result));
}

std::string problem_with(const observed& seen, const slot_id& to, const command& what) {
  return std::visit(command_check{seen, to}, what);
}

std::string problem_with(const observed& seen, const slot_id& from, const report& what) {
  const auto* said = std::get_if<aborted>(&what);
  const auto known = said && said->at != version{} ? seen.generations.find(said->current) : seen.generations.end();
  if (known == seen.generations.end())
    return {};
  const auto& grid = known->second.grid;
  for (std::uint32_t r = 0; r < grid.ranks(); ++r)
    for (auto layer = grid.first_layer[grid.stage_of(r)];
         grid.participants[r].slot == from && layer < grid.first_layer[grid.stage_of(r) + 1]; ++layer)
      if (std::ranges::find(said->held, layer_version{layer, said->at}) == said->held.end())
        return to_string(from) + " says that its stage is at " + to_string(said->at) + ", and does not hold it";
  return {};
}

std::string problem_with(const observed& seen, const durable_state& next) {
  if (next.reserved < seen.durable.reserved)
    return "numbers of generations are given back";
  const auto& chain = next.chain;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const auto before = i > 0 ? chain[i - 1] : chain_link{};
    if (chain[i].base != before.last || chain[i].by <= before.by || chain[i].last < chain[i].base)
      return "the chain is broken before " + name_of(chain[i].by);
    const auto known = seen.generations.find(chain[i].by);
    const auto* was = link_of(seen.durable.chain, chain[i].by);
    if (was && !is_open(*was) && chain[i].last > was->last) // cut back is another matter
      return name_of(chain[i].by) + " ends at " + std::to_string(chain[i].last) + ", and had ended at " +
             std::to_string(was->last);
    if (is_open(chain[i]) || (was && *was == chain[i]))
      continue;
    for (auto step = chain[i].base; step < chain[i].last; ++step)
      if (known == seen.generations.end() || !known->second.exchanged.contains(step))
        return name_of(chain[i].by) + " ends at " + std::to_string(chain[i].last) + ", and step " +
               std::to_string(step) + " was never exchanged in it";
    // By the time that the decision was begun; nobody stays for whom it was made, and what comes before it is in the
    // journal came too late.
    const auto then = was && !is_open(*was) ? sure_before_cut(seen, *was) : known->second.sure_at_abort.value_or(0);
    if (const auto held = surely_held(seen, chain[i].by, chain[i].last, then); // later ones are void
        held > chain[i].last && !next.over)
      return name_of(chain[i].by) + " ends at " + std::to_string(chain[i].last) + ", and version " +
             std::to_string(held) + " is held by those to whom nothing happened";
  }
  for (const auto& [layer, digest] : next.layer_digests)
    if (digest != right_digest(layer, next.chain.back().last))
      return "the final layer " + std::to_string(layer) + " is not what an undisturbed run makes";
  if (next.good && next.layer_digests.size() != seen.layers)
    return "the job is done, and not all of what it trained is known";
  for (const auto& was : seen.durable.chain)
    if (!is_open(was) && !link_of(chain, was.by) && !next.over &&
        surely_held(seen, was.by, was.base, sure_before_cut(seen, was)) > was.base)
      return name_of(was.by) + " is void, and all it made is held by those to whom nothing happened";
  return {};
}

std::string problem_with_exchange(const observed& seen, generation g, std::uint64_t step) {
  const auto known = seen.generations.find(g);
  if (known == seen.generations.end() || known->second.base != step || g < seen.newest_begun)
    return {}; // who thaws may conclude it when others are elsewhere
  const auto& grid = known->second.grid;
  for (std::uint32_t r = 0; r < grid.ranks(); ++r) {
    const auto& slot = grid.participants[r].slot;
    const auto held = seen.held.find(slot);
    if (held == seen.held.end() || !seen.pristine.contains(slot)) // it has lost that since it contributed
      continue;
    const auto stage = grid.stage_of(r);
    for (auto layer = grid.first_layer[stage]; layer < grid.first_layer[stage + 1]; ++layer)
      if (std::ranges::none_of(held->second, [&](const auto& x) {
            return x.layer == layer && (x.at.steps == step || x.at == version{step + 1, g});
          }))
        return to_string(slot) + " contributes to the first step of " + name_of(g) + ", and layer " +
               std::to_string(layer) + " is not whole there";
  }
  return {};
}

std::string problem_with_begin(const observed& seen, generation g, std::uint64_t step) {
  const auto known = seen.generations.find(g);
  if (known == seen.generations.end() || !known->second.base || step < *known->second.base)
    return name_of(g) + " begins step " + std::to_string(step) + ", which is none of it";
  if (const auto last = known->second.last_step; last && step > *last)
    return name_of(g) + " begins step " + std::to_string(step) + " after STOP";
  // Ranks that nobody can reach may train on for a while, alone. What they make is void.
  const auto& grid = known->second.grid;
  for (std::uint32_t r = 0; r < grid.ranks() && g < seen.newest_begun; ++r)
    if (seen.pristine.contains(grid.participants[r].slot))
      return name_of(g) + " begins step " + std::to_string(step) + " after " + name_of(seen.newest_begun) + " trained";
  return {};
}

std::string problem_with_base(const observed& seen) {
  const auto& chain = seen.durable.chain;
  const auto known =
      chain.empty() || !is_open(chain.back()) ? seen.generations.end() : seen.generations.find(chain.back().by);
  if (known == seen.generations.end())
    return {};
  const auto& [number, g] = *known;
  const bool is_over = g.disturbed || g.sure_at_abort || g.exchanged.contains(g.base.value_or(0));
  if (!g.base || *g.base == 0 || is_over) // version 0 is nobody's: it is drawn
    return {};
  std::set<std::uint32_t> whole;
  for (const auto& [slot, held] : seen.held)
    for (const auto& x : held)
      if (x.at.steps == *g.base)
        whole.insert(x.layer);
  if (whole.size() == seen.layers)
    return {};
  return "nobody has all of layer " + std::to_string(*std::ranges::mismatch(whole, std::views::iota(0u)).in2) +
         " at the base of " + name_of(number) + ", which has committed nothing";
}

std::string problem_with_bits(std::uint32_t layer, const version& at, std::uint64_t bits) {
  return bits == right_bits(layer, at.steps)
             ? std::string()
             : "layer " + std::to_string(layer) + " at version " + to_string(at) + " was not trained on its steps";
}

} // namespace parcae::simulation
