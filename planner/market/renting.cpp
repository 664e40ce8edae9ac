#include "planner/market/renting.hpp"

#include "planner/market/budget_check.hpp"
#include "planner/market/kinds.hpp"
#include "planner/market/worth.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

namespace parcae::market {

namespace {

constexpr double full_intervals = 10; // after which a pool that had no more is asked again
constexpr double remembered_s = 3600; // who was let go is named to the hook for
constexpr std::size_t max_let_go = 1000;
constexpr std::uint32_t max_rented = 1024; // a decision goes through all holdings

double seconds(std::chrono::milliseconds x) {
  return static_cast<double>(x.count()) / 1000;
}

} // namespace

renter::renter(std::vector<instance_pool> pools, const std::vector<egress_price>& paths, double interval_s,
               std::size_t courses, const std::string& trained_in) :
    pools_(std::move(pools)),
    interval_s_(interval_s), courses_(courses), states_(pools_.size()) {
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const auto& x = pools_[i];
    const auto alike = std::ranges::find(pools_, x.kind, &instance_pool::kind);
    if (x.slots != alike->slots)
      throw std::invalid_argument("the pools " + alike->name + " and " + x.name + " are of one kind, " + x.kind +
                                  ", with unlike slots; give these kinds unlike names");
    if (!x.usd_per_h)
      throw std::invalid_argument("the pool " + x.name + " has no price; give it one, or a feed or a catalog that has");
    auto place = std::ranges::find_if(places_, [&](const auto& y) { return y.place == x.place && y.kind == x.kind; });
    if (place == places_.end())
      place = places_.insert(place, {x.place, x.place, x.kind, {}, {}});
    auto& same = x.spot ? place->spot : place->on_demand;
    if (same)
      throw std::invalid_argument("the pools " + pools_[*same].name + " and " + x.name + " are alike in " + x.place +
                                  "; make them one");
    same = i;
  }
  for (auto& x : places_)
    if (std::ranges::count(places_, x.place, &place_pools::place) > 1)
      x.name += " (" + x.kind + ")";
  if (max_instances() > max_rented)
    throw std::invalid_argument("the pools have " + std::to_string(max_instances()) + " instances at most, more than " +
                                std::to_string(max_rented) + "; lower their `most`");
  usd_per_gb_.assign(places_.size(), std::vector<double>(places_.size(), 0));
  for (const auto& x : paths)
    for (std::size_t from = 0; from < places_.size(); ++from)
      for (std::size_t to = 0; to < places_.size(); ++to)
        if (places_[from].place == x.from && places_[to].place == x.to)
          usd_per_gb_[from][to] = x.usd_per_gb;
  if (const auto place = std::ranges::find(places_, trained_in, &place_pools::name); place != places_.end())
    place_ = target_ = static_cast<std::size_t>(place - places_.begin());
}

std::set<std::string> renter::pools_of(const std::string& place) const {
  std::set<std::string> result;
  for (const auto& x : places_)
    for (const auto& pool : {x.spot, x.on_demand})
      if (x.name == place && pool)
        result.insert(pools_[*pool].name);
  return result;
}

std::uint32_t renter::max_instances() const {
  std::uint32_t result = 0;
  for (const auto& x : places_)
    result = std::max(result, (x.spot ? pools_[*x.spot].most : 0) + (x.on_demand ? pools_[*x.on_demand].most : 0));
  return result;
}

// One that was asked for; then it is taken for one that does not come.
double renter::waited_for_s(const instance_pool& pool) const {
  return 2 * seconds(pool.start) + interval_s_;
}

// Who has come, who has gone, what does not come.
void renter::look(const renting_facts& x, std::size_t pool) {
  auto& s = states_[pool];
  s.there.clear();
  s.going.clear();
  std::set<std::string> living;
  for (const auto& i : x.instances)
    if (i.pool == pools_[pool].name) {
      living.insert(i.name);
      if (i.leaving)
        s.going.push_back(i.name);
      else
        s.there.push_back(&i);
    }
  std::ranges::stable_sort(s.there, {}, &rented_instance::joined_s);
  for (const auto* i : s.there)
    if (!s.since_s.contains(i->name)) {
      s.since_s[i->name] = began_s(*i, s.asked_s.empty() ? std::nullopt : std::optional(s.asked_s.front()));
      if (!s.asked_s.empty())
        s.asked_s.pop_front();
      s.missing.clear();
    }
  std::erase_if(s.since_s, [&](const auto& i) { return !living.contains(i.first); });
  std::erase_if(s.let_go_s, [&](const auto& i) { return x.now_s - i.second > remembered_s; });
  const auto word = std::ranges::find(x.words, pools_[pool].name, &pool_word::pool);
  const auto can =
      word != x.words.end() && word->can ? *word->can - std::min<std::size_t>(*word->can, s.going.size()) : SIZE_MAX;
  const bool has_no_more = can < s.want;
  if (has_no_more)
    s.asked_s.resize(std::min(s.asked_s.size(), can - std::min(can, s.there.size())));
  const bool is_overdue = !s.asked_s.empty() && x.now_s - s.asked_s.front() > waited_for_s(pools_[pool]);
  if (is_overdue) {
    s.missing = counted(s.asked_s.size(), "instance") + " asked for did not come within " +
                text_of_duration(std::chrono::milliseconds(std::llround(1000 * waited_for_s(pools_[pool]))));
    s.asked_s.clear();
  }
  if (has_no_more || is_overdue)
    s.full_until_s = x.now_s + full_intervals * interval_s_;
}

void renter::look(const renting_facts& x) {
  for (std::size_t i = 0; i < pools_.size(); ++i)
    look(x, i);
  settle();
}

// It trains where it trained until all that is rented elsewhere is there, or nothing is left.
void renter::settle() {
  const auto there = count(target_, false);
  if (there > 0 && (there == count(target_, true) || count(place_, false) == 0))
    place_ = target_;
}

// What is there, and no more. It trains where it is, else where most are.
void renter::take_what_comes() {
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (count(place_, false) == 0 && count(i, false) > count(target_, false))
      target_ = i;
  if (count(place_, false) == 0)
    place_ = target_;
  target_ = place_;
  replaced_ = {};
  for (auto& s : states_)
    s.want = static_cast<std::uint32_t>(s.there.size());
}

std::uint32_t renter::there(std::optional<std::size_t> pool) const {
  return pool ? static_cast<std::uint32_t>(states_[*pool].there.size()) : 0;
}

std::uint32_t renter::asked(std::optional<std::size_t> pool) const {
  return pool ? static_cast<std::uint32_t>(states_[*pool].asked_s.size()) : 0;
}

std::uint32_t renter::count(std::size_t place, bool coming) const {
  std::uint32_t result = 0;
  for (const auto& pool : {places_[place].spot, places_[place].on_demand})
    result += there(pool) + (coming ? asked(pool) : 0);
  return result;
}

double renter::price_of(const renting_facts& x, std::size_t pool) const {
  const auto quote = std::ranges::find(x.quotes, pools_[pool].name, &pool_quote::pool);
  return quote != x.quotes.end() ? quote->usd_per_h : *pools_[pool].usd_per_h;
}

// To be had, with those that are there.
std::uint32_t renter::max_of(const renting_facts& x, std::size_t pool) const {
  auto result = pools_[pool].most;
  if (const auto quote = std::ranges::find(x.quotes, pools_[pool].name, &pool_quote::pool); quote != x.quotes.end())
    result = std::min(result, quote->available.value_or(result));
  if (states_[pool].full_until_s > x.now_s)
    result = std::min(result, there(pool) + asked(pool));
  return std::min(std::max(result, there(pool)), pools_[pool].most);
}

std::vector<double> renter::speeds_of(const renting_job& x) const {
  std::vector<double> result;
  for (const auto& place : places_)
    result.push_back(speed_of(place.kind, x, pools_));
  return result;
}

std::vector<place_offer> renter::offers_of(const renting_facts& x) const {
  std::vector<place_offer> result;
  const auto speeds = x.job ? speeds_of(*x.job) : std::vector<double>();
  for (const auto& place : places_) {
    place_offer offer{place.name, 0, 0, 0, 0, 0};
    offer.speed = speeds.empty() ? 1 : speeds[result.size()] / *std::ranges::max_element(speeds);
    if (place.on_demand) {
      offer.on_demand = max_of(x, *place.on_demand);
      offer.on_demand_usd_per_h = offer.spot_usd_per_h = price_of(x, *place.on_demand);
    }
    if (place.spot) {
      offer.spot = max_of(x, *place.spot);
      offer.max_spot = pools_[*place.spot].most;
      offer.spot_usd_per_h = price_of(x, *place.spot);
    }
    result.push_back(offer);
  }
  return result;
}

// Until the last of them is there, if it takes the usual time.
double renter::coming_s(double now_s, std::optional<std::size_t> pool) const {
  if (!pool || states_[*pool].asked_s.empty())
    return 0;
  return std::max(states_[*pool].asked_s.back() + seconds(pools_[*pool].start) - now_s, 0.0);
}

purchase_state renter::state_of(const renting_facts& x) const {
  // Not those that stay only until others are there.
  const auto held = [&](std::optional<std::size_t> pool, std::optional<std::size_t> other, std::uint32_t replaced) {
    return there(pool) + asked(pool) - std::min({replaced, there(pool), asked(other)});
  };
  const auto &here = places_[place_], &target = places_[target_];
  purchase_state result;
  result.now_s = x.now_s - x.job->submitted_s;
  result.samples_left = x.job->samples_left;
  result.spent_usd = x.job->spent_usd;
  result.share_used = x.job->share_used;
  result.places = offers_of(x);
  result.working = {place_, there(here.spot), there(here.on_demand)};
  result.held = {target_, held(target.spot, target.on_demand, replaced_.spot),
                 held(target.on_demand, target.spot, replaced_.on_demand)};
  result.on_demand_starting_s = coming_s(x.now_s, places_[target_].on_demand);
  result.starting_s = std::max(result.on_demand_starting_s, coming_s(x.now_s, places_[target_].spot));
  result.last_place = place_;
  result.is_reserve = is_reserve_;
  return result;
}

purchase_options renter::options_of(const renting_job& x) const {
  auto result = x.figures;
  for (auto& rate : result.samples_per_s)
    rate *= std::ranges::max(speeds_of(x));
  result.interval_s = interval_s_;
  for (const auto& pool : pools_)
    result.start_s = std::max(result.start_s, seconds(pool.start));
  result.deadline_s = x.budget.deadline ? seconds(*x.budget.deadline) : std::numeric_limits<double>::infinity();
  result.total_usd = x.budget.total_usd;
  result.hourly_usd = x.budget.usd_per_h;
  result.total_first = x.budget.total_first;
  result.courses = courses_;
  result.move_usd = usd_per_gb_;
  for (auto& from : result.move_usd)
    for (auto& usd : from)
      usd *= x.state_gb;
  return result;
}

// What a manager that begins again finds training. Nothing of a job that is yet to begin, if it is no more than that
// begins with.
std::optional<holding> renter::found(const renting_facts& x) const {
  const auto offers = offers_of(x);
  holding result;
  bool is_where_it_trained = false; // be it fewer than elsewhere
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const holding h{i, there(places_[i].spot), there(places_[i].on_demand)};
    const double usd = h.spot * offers[i].spot_usd_per_h + h.on_demand * offers[i].on_demand_usd_per_h;
    if (h.instances() == 0 || (x.job->budget.usd_per_h && usd > *x.job->budget.usd_per_h))
      continue;
    const bool trained = i == place_ && x.job->has_begun;
    if (trained || (!is_where_it_trained && h.instances() > result.instances()))
      result = h;
    is_where_it_trained |= trained;
  }
  return result.instances() > (x.job->has_begun ? 0 : x.job->least) ? std::optional(result) : std::nullopt;
}

// As few as it begins with, of those that are there: a change would cost more than it brings before its speed is known.
std::optional<holding> renter::enough_to_begin(const renting_facts& x) const {
  const auto offers = offers_of(x);
  const auto& here = places_[target_];
  const auto spot = std::min(there(here.spot), x.job->least);
  const holding h{target_, spot, std::min(there(here.on_demand), x.job->least - spot)};
  const double usd = h.spot * offers[target_].spot_usd_per_h + h.on_demand * offers[target_].on_demand_usd_per_h;
  const bool is_allowed = !x.job->budget.usd_per_h || usd <= *x.job->budget.usd_per_h;
  return h.instances() == x.job->least && is_allowed ? std::optional(h) : std::nullopt;
}

// As long as nothing is known of the job: what was found, else as few as it begins with, where they are cheapest.
holding renter::first_of(const renting_facts& x) const {
  if (found_)
    return *found_;
  if (const auto enough = enough_to_begin(x))
    return *enough;
  const auto offers = offers_of(x);
  std::optional<double> least_usd;
  const auto coming = [&](std::optional<std::size_t> pool) { return there(pool) + asked(pool); };
  holding result{target_, coming(places_[target_].spot), coming(places_[target_].on_demand)};
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto& offer = offers[i];
    const auto spot = std::min(offer.spot, x.job->least), on_demand = std::min(offer.on_demand, x.job->least - spot);
    const double usd = spot * offer.spot_usd_per_h + on_demand * offer.on_demand_usd_per_h;
    const bool is_enough =
        spot + on_demand == x.job->least && (!x.job->budget.usd_per_h || usd <= *x.job->budget.usd_per_h);
    if (is_enough && (!least_usd || usd < *least_usd || (count(i, true) > 0 && usd == *least_usd))) {
      least_usd = usd;
      result = {i, spot, on_demand};
    }
  }
  return result;
}

purchase renter::best_of(const renting_facts& x) {
  const auto options = options_of(*x.job);
  const auto offers = offers_of(x);
  if (policy_ && policy_->options().samples_per_s.size() == options.samples_per_s.size())
    policy_->know(options, offers);
  else
    policy_.emplace(options, offers);
  const auto now = state_of(x);
  auto result = policy_->decide(now);
  policy_->look_ahead(now, result);
  is_reserve_ = result.is_reserve;
  return result;
}

// What trains stays until what replaces it is there: of its own place only that, of another one all.
void renter::want(const holding& h, const holding& replaced) {
  target_ = h.place;
  replaced_ = replaced;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const bool trains_on = i == place_ && i != target_ && h.instances() > 0;
    const auto set = [&](std::optional<std::size_t> pool, std::uint32_t n) {
      if (pool)
        states_[*pool].want = i == target_ ? n
                              : trains_on  ? static_cast<std::uint32_t>(states_[*pool].there.size())
                                           : 0;
    };
    set(places_[i].spot, h.spot + replaced.spot);
    set(places_[i].on_demand, h.on_demand + replaced.on_demand);
  }
}

renting_order renter::order_of(double now_s) {
  renting_order result;
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    auto& s = states_[i];
    pool_order order{pools_[i].name, pools_[i].kind, pools_[i].place, s.want, {}, {}};
    for (const auto* x : s.there)
      if (order.have.size() < s.want) {
        order.have.push_back(x->name);
      } else { // the newest go
        result.let_go.push_back(x->name);
        s.going.push_back(x->name);
        if (s.let_go_s.size() < max_let_go)
          s.let_go_s[x->name] = now_s;
      }
    for (const auto& [name, when] : s.let_go_s)
      if (!s.since_s.contains(name))
        order.release.push_back(name);
    const auto missing = s.want - order.have.size();
    while (s.asked_s.size() > missing)
      s.asked_s.pop_back();
    s.asked_s.resize(missing, now_s);
    for (const auto& name : s.going) { // nobody ends them before the job has what it needs of them
      order.have.push_back(name);
      ++order.want;
    }
    if (!s.missing.empty())
      result.missing[pools_[i].name] = s.missing;
    result.pools.push_back(std::move(order));
  }
  return result;
}

// Of a job whose money comes first, as without a deadline: not enough is left for an interval of the cheapest instance.
bool renter::is_spent(const renting_facts& x) const {
  if (!x.job || !x.job->budget.total_usd || !(x.job->budget.total_first || !x.job->budget.deadline))
    return false;
  double least_usd = price_of(x, 0);
  for (std::size_t i = 1; i < pools_.size(); ++i)
    least_usd = std::min(least_usd, price_of(x, i));
  return x.job->spent_usd + least_usd * interval_s_ / 3600 > *x.job->budget.total_usd;
}

// Pools as they are now.
std::vector<instance_pool> renter::priced(const renting_facts& x) const {
  auto result = pools_;
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i].usd_per_h = price_of(x, i);
  return result;
}

// For people: why it is so, and if it will be late.
std::string renter::why_of(const renting_facts& x, const renting_order& order) const {
  if (!x.job)
    return "no job needs an instance";
  if (!x.job->budget.is_set())
    return "the job has no budget: it takes what comes";
  std::string result = order.decision ? order.decision->why
                                      : "what is there, else as few as the job begins with, until its speed is known";
  std::uint32_t wanted = 0;
  for (const auto& s : states_)
    wanted += s.want;
  if (const auto problem = hourly_problem(*x.job, priced(x)); !problem.empty() && wanted == 0)
    result = "nothing can be rented: " + problem;
  else if (!order.decision && !x.job->has_begun && wanted < x.job->least)
    result = std::to_string(wanted) + " of the " + counted(x.job->least, "instance") +
             " that the job begins with: the pools have no more; they are asked again soon";
  if (order.late_s >= 1)
    result +=
        "; late by " + text_of_duration(std::chrono::milliseconds(std::llround(order.late_s) * 1000)) + " at least";
  return result;
}

renting_order renter::decide(const renting_facts& x) {
  const auto before = place_;
  look(x);
  const auto& job = x.job;
  if (!job || job->id != job_) {
    policy_.reset();
    is_reserve_ = false;
    job_ = job ? job->id : 0;
    found_ = job ? found(x) : std::nullopt;
    if (found_)
      place_ = target_ = found_->place;
  }
  std::optional<purchase> decision;
  if (!job)
    want({target_, 0, 0});
  else if (!job->budget.is_set())
    take_what_comes();
  else if (job->samples_left <= 0) // it is being kept: nothing changes until its end
    ;
  else if (job->figures.samples_per_s.empty() || (!job->has_begun && job->least > 1))
    want(is_spent(x) ? holding{target_, 0, 0} : first_of(x));
  else {
    decision = best_of(x);
    want(decision->what, replaced_by(decision->what, state_of(x), policy_->options()));
  }
  auto result = order_of(x.now_s);
  result.place = place();
  if (job && job->has_begun && place_ != before)
    result.way_usd = usd_per_gb_[before][place_] * job->state_gb;
  result.decision = std::move(decision);
  if (result.decision)
    result.late_s = result.decision->late_s;
  else if (job && job->budget.deadline && job->samples_left > 0)
    result.late_s = std::max(x.now_s - job->submitted_s - seconds(*job->budget.deadline), 0.0);
  result.why = why_of(x, result);
  const bool holds_nothing = !result.decision || result.decision->what.instances() == 0;
  result.money_is_spent = holds_nothing && is_spent(x);
  return result;
}

double renter::began_s(const rented_instance& x, std::optional<double> asked_s) const {
  const auto pool = std::ranges::find(pools_, x.pool, &instance_pool::name);
  if (pool == pools_.end())
    return x.joined_s;
  if (x.process_s <= 0)
    return asked_s ? std::clamp(*asked_s, x.joined_s - seconds(pool->start), x.joined_s) : x.joined_s;
  if (x.earlier_s > 0 && asked_s > x.joined_s - x.process_s) // for another one
    asked_s.reset();
  const double earliest = x.joined_s - x.earlier_s - waited_for_s(*pool), booted_s = x.joined_s - x.machine_s;
  if (x.machine_s >= x.process_s && booted_s >= std::max(asked_s.value_or(earliest), earliest))
    return booted_s;
  return std::max(x.joined_s - x.process_s, earliest);
}

std::optional<double> renter::paid_since_s(const std::string& instance) const {
  for (const auto& s : states_)
    if (const auto found = s.since_s.find(instance); found != s.since_s.end())
      return found->second;
  return std::nullopt;
}

std::string renter::text_of(const holding& x) const {
  if (x.instances() == 0)
    return "nothing";
  std::string result;
  if (x.spot > 0)
    result = std::to_string(x.spot) + " spot";
  if (x.on_demand > 0)
    result += (result.empty() ? "" : " and ") + std::to_string(x.on_demand) + " on demand";
  return result + " in " + places_[x.place].name;
}

} // namespace parcae::market
