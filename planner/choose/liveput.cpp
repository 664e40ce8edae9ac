#include "planner/choose/liveput.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace parcae {

namespace {

constexpr double never = -1e300; // a move that cannot be made

// The configurations that a decision chooses from: the fastest for every size, and the present one.
std::vector<std::uint32_t> considered(move_table& table, const interval_state& now,
                                      const std::set<std::uint32_t>& sizes, bool blind,
                                      const liveput_options& options) {
  std::set<std::uint32_t> chosen;
  if (now.at != move_table::idle)
    chosen.insert(now.at);
  for (auto size : sizes) {
    const auto& fast = table.fastest(size, options.shapes_per_size);
    chosen.insert(fast.begin(), fast.end());
  }
  if (blind) { // what clipping makes of them
    auto all = chosen;
    for (auto x : chosen)
      for (auto size : sizes)
        if (const auto y = table.clipped(x, size); y != move_table::idle)
          all.insert(y);
    chosen = std::move(all);
  }
  return {chosen.begin(), chosen.end()};
}

} // namespace

// Those configurations, numbered from 0, and their moves; the last number is IDLE.
class plan_memory::selection {
public:
  selection(move_table& table, std::vector<std::uint32_t> shapes) :
      table_(table), devices_(table.costs().devices()), shapes_(std::move(shapes)) {
    for (std::uint32_t i = 0; i < shapes_.size(); ++i)
      number_[shapes_[i]] = i;
    number_[move_table::idle] = idle();
    for (auto x : shapes_)
      most_.push_back(table.rate(x) * table.seconds());
    most_.push_back(0);
  }

  const std::vector<std::uint32_t>& shapes() const { return shapes_; }
  std::size_t cells() const { return moves_.size() * size() * size(); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(shapes_.size()) + 1; }
  std::uint32_t idle() const { return static_cast<std::uint32_t>(shapes_.size()); }
  std::uint32_t shape_of(std::uint32_t number) const { return number == idle() ? move_table::idle : shapes_[number]; }
  std::uint32_t number_of(std::uint32_t shape) const { return number_.at(shape); }
  // Samples of an interval without a move.
  double most(std::uint32_t number) const { return most_[number]; }
  bool fits(std::uint32_t number, std::uint32_t instances) const {
    return number == idle() || slots_of(number) <= instances * devices_;
  }
  std::uint32_t slots_of(std::uint32_t number) const { return table_.shapes()[shapes_[number]].slots(); }

  // Number that each target has once only `instances` are left.
  const std::vector<std::uint32_t>& clip(std::uint32_t instances) {
    auto& result = clip_[instances];
    if (result.empty())
      for (std::uint32_t i = 0; i < size(); ++i)
        result.push_back(number_of(table_.clipped(shape_of(i), instances)));
    return result;
  }

  // Whether each number can be chosen knowing that there are `instances`; IDLE only if nothing else can, or in
  // real time.
  const std::vector<char>& allowed(std::uint32_t instances) {
    auto& result = allowed_[instances];
    if (result.empty()) {
      for (std::uint32_t i = 0; i < idle(); ++i)
        result.push_back(slots_of(i) <= instances * devices_ && table_.rate(shapes_[i]) > 0);
      result.push_back(table_.costs().real_time() || std::find(result.begin(), result.end(), 1) == result.end());
    }
    return result;
  }

  // Samples of the interval for each (from, to); `never` where from or to do not fit.
  const std::vector<double>& gains(std::uint32_t held, std::uint32_t joined, std::uint32_t lost) {
    return moves(held, joined, lost).gains;
  }

  // The same, what each move costs (`most` without its gain), and the most that any configuration, or any other one,
  // gains by going to each.
  struct all_moves {
    std::vector<double> gains, costs, from_any, from_other;
  };
  const all_moves& moves(std::uint32_t held, std::uint32_t joined, std::uint32_t lost) {
    auto& all = moves_[{held, joined, lost}];
    auto& result = all.gains;
    if (!result.empty())
      return all;
    const auto before = held * devices_, after = (held + joined - lost) * devices_;
    result.assign(static_cast<std::size_t>(size()) * size(), never);
    for (std::uint32_t from = 0; from < size(); ++from)
      result[static_cast<std::size_t>(from) * size() + idle()] = 0;
    for (std::uint32_t to = 0; to < idle(); ++to)
      if (slots_of(to) <= after)
        result[static_cast<std::size_t>(idle()) * size() + to] =
            table_.rate(shapes_[to]) *
            (table_.seconds() - table_.costs().start_ms(table_.shapes()[shapes_[to]], false) / 1000);
    table_.each_gain(
        shapes_, held, lost, [&](auto from, auto to) { return slots_of(from) <= before && slots_of(to) <= after; },
        [&](auto from, auto to, double samples) { result[static_cast<std::size_t>(from) * size() + to] = samples; });
    const auto n = size();
    all.costs.resize(result.size());
    all.from_any.assign(n, never);
    all.from_other.assign(n, never);
    for (std::uint32_t from = 0; from < n; ++from) {
      const auto* gain = &result[static_cast<std::size_t>(from) * n];
      auto* cost = &all.costs[static_cast<std::size_t>(from) * n];
      const auto other = all.from_other[from];
      for (std::uint32_t to = 0; to < n; ++to) {
        cost[to] = most_[to] - gain[to];
        all.from_any[to] = std::max(all.from_any[to], gain[to]);
        all.from_other[to] = std::max(all.from_other[to], gain[to]);
      }
      all.from_other[from] = other;
    }
    return all;
  }

private:
  move_table& table_;
  const std::uint32_t devices_;
  std::vector<std::uint32_t> shapes_;
  std::vector<double> most_;
  std::map<std::uint32_t, std::uint32_t> number_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> clip_;
  std::map<std::uint32_t, std::vector<char>> allowed_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, all_moves> moves_;
};

plan_memory::plan_memory() = default;
plan_memory::~plan_memory() = default;

plan_memory::selection& plan_memory::find(move_table& table, std::vector<std::uint32_t> shapes) {
  std::erase_if(recent_, [](const auto& x) { return x->cells() > max_cells; });
  auto found = std::find_if(recent_.begin(), recent_.end(), [&](const auto& x) { return x->shapes() == shapes; });
  if (found == recent_.end()) {
    if (recent_.size() == most)
      recent_.pop_back();
    found = recent_.insert(recent_.end(), std::make_unique<selection>(table, std::move(shapes)));
  }
  std::rotate(recent_.begin(), found, found + 1);
  return *recent_.front();
}

namespace {

using selection = plan_memory::selection;

using values = std::vector<double>; // by number: expected samples from there on

// Of the nodes of a stage; many nodes have the same.
class stage_values {
public:
  // Of the next node: values of its own, or those of an earlier one.
  std::uint32_t add(values x) {
    distinct_.push_back(std::move(x));
    node_.push_back(static_cast<std::uint32_t>(distinct_.size() - 1));
    return node_.back();
  }
  void add_again(std::uint32_t number) { node_.push_back(number); }

  const values& operator[](std::size_t node) const { return distinct_[node_[node]]; }
  std::uint32_t number(std::size_t node) const { return node_[node]; }

private:
  std::vector<std::uint32_t> node_; // by node: which of the distinct ones
  std::vector<values> distinct_;
};

// A node of the lattice where targets are chosen before the change is known, and are clipped to what it leaves.
class blind_choice {
public:
  blind_choice(selection& s, const lattice_node& node, const stage_values& next) : s_(s), at_(node.available) {
    const auto n = s.size();
    free_.assign(n, 0);
    bound_.assign(n, 0);
    ways_.reserve(node.branches.size());
    for (const auto& b : node.branches) {
      const auto& clip = s.clip(at_ + b.joined - b.lost);
      const auto& moves = s.moves(at_, b.joined, b.lost);
      ways_.push_back({b.probability, clip.data(), moves.costs.data()});
      for (std::uint32_t to = 0; to < n; ++to) {
        const auto clipped = clip[to];
        const double later = next[b.next][clipped];
        free_[to] += b.probability * (s.most(clipped) + later);
        bound_[to] += b.probability * ((clipped == to ? moves.from_other : moves.from_any)[clipped] + later);
      }
    }
    // The likely ways first: then the sum falls below `least` soonest.
    std::sort(ways_.begin(), ways_.end(), [](const way& a, const way& b) { return a.probability > b.probability; });
    // IDLE is no choice: where nothing fits, clipping leads to it.
    order_.resize(n > 1 ? s.idle() : n);
    std::iota(order_.begin(), order_.end(), 0u);
    std::sort(order_.begin(), order_.end(), [&](auto a, auto b) { return bound_[a] > bound_[b]; });
  }

  // Expected samples from here on of a target; anything below `least` if that is not reached.
  double of(std::uint32_t from, std::uint32_t to, double least = never) const {
    double result = free_[to];
    const auto row = static_cast<std::size_t>(from) * s_.size();
    for (const auto& x : ways_) {
      result -= x.probability * x.costs[row + x.clip[to]];
      if (result < least)
        break;
    }
    return result;
  }

  // The most that any target yields. Targets are tried in falling order of their bounds, as long as these exceed the
  // best.
  double best(std::uint32_t from) const {
    if (!s_.fits(from, at_))
      return never;
    double result = from == s_.idle() ? never : of(from, from);
    for (auto to : order_) {
      if (bound_[to] <= result)
        break;
      if (to != from)
        result = std::max(result, of(from, to, result));
    }
    return result;
  }

private:
  struct way {
    double probability;
    const std::uint32_t* clip; // by target
    const double* costs;       // by (from, to)
  };

  selection& s_;
  std::uint32_t at_;
  std::vector<way> ways_;
  std::vector<double> free_;         // expected samples of a target if moves were free
  std::vector<double> bound_;        // the most of a target from another configuration
  std::vector<std::uint32_t> order_; // targets, best by that first
};

values blind_values(selection& s, const lattice_node& node, const stage_values& next) {
  const blind_choice choice(s, node, next);
  values result(s.size());
  for (std::uint32_t from = 0; from < s.size(); ++from)
    result[from] = choice.best(from);
  return result;
}

values informed_values(selection& s, const lattice_node& node, const stage_values& next) {
  const auto n = s.size();
  values result(n, 0);
  values offer(n);
  for (const auto& b : node.branches) {
    const auto& allowed = s.allowed(node.available + b.joined - b.lost);
    const auto& gains = s.gains(node.available, b.joined, b.lost);
    for (std::uint32_t to = 0; to < n; ++to)
      offer[to] = allowed[to] ? next[b.next][to] : never;
    for (std::uint32_t from = 0; from < n; ++from) {
      double best = never;
      if (s.fits(from, node.available)) {
        const auto* row = &gains[static_cast<std::size_t>(from) * n];
        for (std::uint32_t to = 0; to < n; ++to)
          best = std::max(best, row[to] + offer[to]);
      }
      result[from] += b.probability * best;
    }
  }
  return result;
}

// How long training goes on behind the look-ahead: until the fleet is expected to change, though not for longer than
// was looked ahead, since the rarer changes are the less is known of how rare. Without this a change that pays only
// later would look too dear wherever changes are rare. At least for as long as the cheapest start takes: else, on links
// so slow that this is longer than is looked ahead, a start would never pay, and the loss of a stage cost too little.
double intervals_behind(const move_table& table, const selection& s, const availability_lattice& future,
                        std::size_t intervals) {
  const double calm = intervals_until_change(future, static_cast<double>(intervals));
  double start_ms = std::numeric_limits<double>::infinity();
  for (const auto x : s.shapes())
    start_ms = std::min(start_ms, table.costs().stall_of_start_ms(table.shapes()[x]));
  return s.shapes().empty() ? calm : std::max(calm, start_ms / 1000 / table.seconds());
}

// The values behind the look-ahead: one more move, then the same for what is left of `behind` intervals.
stage_values final_values(selection& s, const move_table& table, const availability_lattice& future, double behind) {
  const auto n = s.size();
  std::map<std::uint32_t, std::uint32_t> by_size;
  stage_values result;
  for (const auto& node : future.stages.back()) {
    if (const auto known = by_size.find(node.available); known != by_size.end()) {
      result.add_again(known->second);
      continue;
    }
    values x(n, never);
    const auto& gains = s.gains(node.available, 0, 0);
    const auto& allowed = s.allowed(node.available);
    for (std::uint32_t from = 0; from < n; ++from)
      for (std::uint32_t to = 0; to < n; ++to)
        if (allowed[to]) {
          const double rate = to == s.idle() ? 0 : table.rate(s.shape_of(to));
          x[from] =
              std::max(x[from], gains[static_cast<std::size_t>(from) * n + to] + (behind - 1) * table.seconds() * rate);
        }
    by_size[node.available] = result.add(std::move(x));
  }
  return result;
}

// Of a stage, from those of the next. Most nodes have one way on, where what is rare was left out: then all that
// have the same are worth the same.
stage_values values_before(selection& s, const std::vector<lattice_node>& stage, const stage_values& next, bool blind) {
  std::map<std::array<std::uint32_t, 4>, std::uint32_t> one_way;
  stage_values result;
  for (const auto& node : stage) {
    auto of_node = [&] { return blind ? blind_values(s, node, next) : informed_values(s, node, next); };
    if (node.branches.size() > 1) {
      result.add(of_node());
      continue;
    }
    const auto& b = node.branches[0];
    const auto [known, fresh] = one_way.try_emplace({node.available, b.joined, b.lost, next.number(b.next)}, 0);
    if (fresh)
      known->second = result.add(of_node());
    else
      result.add_again(known->second);
  }
  return result;
}

// What plan_liveput is asked.
struct question {
  move_table& table;
  const interval_state& now;
  std::uint32_t held;
  std::span<const fleet_change> known;
  const availability_lattice& future;
  const liveput_options& options;

  bool blind() const { return known.empty(); }
  std::size_t intervals() const { return future.look_ahead() + known.size(); }
};

// How many instances there may be.
std::set<std::uint32_t> sizes_in(const question& q) {
  std::set<std::uint32_t> sizes;
  for (const auto& stage : q.future.stages)
    for (const auto& node : stage)
      sizes.insert(node.available);
  auto at = q.held;
  for (const auto& x : q.known) {
    at += x.joined - x.lost;
    sizes.insert(at);
  }
  return sizes;
}

// Expected samples from the first stage of the lattice on.
stage_values values_of_future(const question& q, selection& s) {
  auto next = final_values(s, q.table, q.future, intervals_behind(q.table, s, q.future, q.intervals()));
  for (auto h = q.future.look_ahead(); h-- > (q.blind() ? 1u : 0u);)
    next = values_before(s, q.future.stages[h], next, q.blind());
  return next;
}

// What the present state adds to the table's gains: a first start reads no checkpoint, a change under way has a rest
// (which in real time was counted when the change began).
double present_extra(const question& q, const selection& s, std::uint32_t to) {
  if (to == s.idle())
    return 0;
  auto& costs = q.table.costs();
  const auto target = s.shape_of(to);
  const auto& shape = q.table.shapes()[target];
  double ms = 0;
  if (q.now.at == move_table::idle && !q.now.begun)
    ms = costs.start_ms(shape, true) - costs.start_ms(shape, false);
  else if (!costs.real_time())
    ms = unfinished_ms(q.table, q.now, target, 0);
  return -q.table.rate(target) * ms / 1000;
}

// Samples expected of each target, chosen before the interval's change is known.
values blind_offers(const question& q, selection& s, const stage_values& next) {
  const auto n = s.size();
  const auto from = s.number_of(q.now.at);
  values offer(n, 0);
  for (std::size_t i = 0; i < q.future.stages[0].size(); ++i) {
    const blind_choice choice(s, q.future.stages[0][i], next);
    for (std::uint32_t to = 0; to < n; ++to)
      offer[to] +=
          n > 1 && to == s.idle() ? never : q.future.start[i] * (choice.of(from, to) + present_extra(q, s, to));
  }
  return offer;
}

// Samples expected of being in each target after the change known last, then of going there from any other, and so on
// back to the present interval, in which training is where it is.
values informed_offers(const question& q, selection& s, const stage_values& next) {
  const auto n = s.size();
  values offer(n, 0);
  for (std::size_t i = 0; i < q.future.stages[0].size(); ++i)
    for (std::uint32_t to = 0; to < n; ++to)
      offer[to] += q.future.start[i] * next[i][to];
  for (auto k = q.known.size(); k-- > 0;) {
    auto before = q.held;
    for (std::size_t j = 0; j < k; ++j)
      before += q.known[j].joined - q.known[j].lost;
    const auto& allowed = s.allowed(before + q.known[k].joined - q.known[k].lost);
    const auto& gains = s.gains(before, q.known[k].joined, q.known[k].lost);
    for (std::uint32_t to = 0; to < n; ++to)
      if (!allowed[to])
        offer[to] = never;
    if (k == 0) {
      const auto* row = &gains[static_cast<std::size_t>(s.number_of(q.now.at)) * n];
      for (std::uint32_t to = 0; to < n; ++to)
        if (!q.options.first_ms)
          offer[to] += row[to] + present_extra(q, s, to);
        else if (to != s.idle())
          offer[to] += q.table.rate(s.shape_of(to)) * (q.table.seconds() - q.options.first_ms(s.shape_of(to)) / 1000);
      break;
    }
    auto later = offer;
    for (std::uint32_t x = 0; x < n; ++x) {
      offer[x] = never;
      for (std::uint32_t to = 0; to < n; ++to)
        offer[x] = std::max(offer[x], gains[static_cast<std::size_t>(x) * n + to] + later[to]);
    }
  }
  return offer;
}

// The best first. Staying wins ties, then the smaller configuration.
std::vector<liveput_choice> ranking(const question& q, const selection& s, values offer) {
  // Where something fits nobody waits now: plans count changes in full, but one that the fleet cuts short costs no more
  // than the time until then, which waiting loses, too.
  if (std::any_of(offer.begin(), offer.end() - 1, [](double x) { return x > never / 2; }))
    offer[s.idle()] = never;
  std::vector<liveput_choice> order;
  for (std::uint32_t to = 0; to < s.size(); ++to)
    order.push_back({s.shape_of(to), offer[to]});
  std::stable_sort(order.begin(), order.end(), [&](const liveput_choice& a, const liveput_choice& b) {
    return a.samples != b.samples ? a.samples > b.samples : (a.target == q.now.at) > (b.target == q.now.at);
  });
  std::size_t shown = 1;
  while (shown < order.size() && shown < 4 && order[shown].samples > never / 2)
    ++shown;
  order.resize(shown);
  return order;
}

} // namespace

std::vector<liveput_choice> plan_liveput(move_table& table, const interval_state& now, std::uint32_t held,
                                         std::span<const fleet_change> known, const availability_lattice& future,
                                         const liveput_options& options) {
  const question q{.table = table, .now = now, .held = held, .known = known, .future = future, .options = options};
  plan_memory own;
  auto& s =
      (options.memory ? options.memory : &own)->find(table, considered(table, now, sizes_in(q), q.blind(), options));
  const auto next = values_of_future(q, s);
  return ranking(q, s, q.blind() ? blind_offers(q, s, next) : informed_offers(q, s, next));
}

} // namespace parcae
