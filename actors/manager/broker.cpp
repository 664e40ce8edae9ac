#include "actors/manager/broker.hpp"

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/journal_store.hpp"
#include "actors/manager/status.hpp"
#include "planner/choose/live_plan.hpp"
#include "planner/market/elastic_figures.hpp"
#include "planner/market/kinds.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/base/text.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace parcae {

namespace {

using broker_pointer = broker_actor::stateful_pointer<broker_state>;

constexpr std::chrono::seconds facts_limit{5}, ledger_limit{5};
constexpr std::size_t told_courses = 200; // of chance: 10, 50, 90 % of their cost and end are told
constexpr int stop_intervals = 5;         // a checkpoint is waited for, at most
constexpr double remembered_s = 86'400;   // who has gone, as it may return
constexpr std::uint64_t longest_notice_ms = 3'600'000;

// Until who ran under a manager before has returned: nodes say HELLO within seconds.
double return_s(std::chrono::milliseconds interval) {
  return 2 * std::chrono::duration<double>(interval).count() + 5;
}

double seconds_before(time_point now, time_point x) {
  return std::chrono::duration<double>(now - x).count();
}

double wall_s(const broker_state& s, time_point now) {
  return s.begun_wall_s + seconds_before(now, s.begun);
}

// What it trains, whatever it is called, how long, and for how much: a digest.
std::string work_of(job_specification x) {
  const job_specification any;
  x.name = any.name;
  x.steps = any.steps;
  x.seed = any.seed;
  x.budget = any.budget;
  x.resume = any.resume;
  x.checkpoint = any.checkpoint;
  x.min_instances = any.min_instances;
  const auto bytes = encode(request{submit_request{std::move(x), {}}});
  return sha256_of(std::as_bytes(std::span(bytes)));
}

bool is_measured(const job_picture& x) {
  return x.view && !x.view->known.measured.empty();
}

// Rates and changes of instances of its kind.
market::purchase_options figures_in(const job_view& x, const job_specification& job, const broker_state& s) {
  const auto& pools = s.config.pools;
  const auto pool = std::ranges::find(pools, x.kind, &instance_pool::kind);
  const auto slots = pool == pools.end() ? pools[0].slots : pool->slots, most = s.rents->max_instances();
  return market::elastic_figures(profile_of(job, facts_of(job).state_bytes, x.known, most * slots), x.known.figures,
                                 slots, most);
}

// As measured by it, and on other kinds by it or a job that trained the same, if need be under a manager before; none
// before the first generation was.
void take_figures(market::renting_job& to, const rented_for& x, const broker_state& s) {
  to.state_gb = 0;
  for (const auto bytes : facts_of(x.specification).state_bytes)
    to.state_gb += static_cast<double>(bytes) / 1e9;
  std::map<std::string, market::purchase_options> measured;
  const auto work = work_of(x.specification);
  for (const auto& [kind, job] : s.known)
    if (work_of(job->specification) == work)
      measured[kind] = figures_in(*job->picture.view, x.specification, s);
  if (is_measured(x.picture))
    measured[x.picture.view->kind] = figures_in(*x.picture.view, x.specification, s);
  if (measured.empty())
    return;
  auto own = x.picture.view ? measured.find(x.picture.view->kind) : measured.end();
  if (own == measured.end())
    own = std::prev(measured.end());
  to.kind = own->first;
  to.figures = own->second;
  for (const auto& [kind, figures] : measured)
    to.speeds[kind] = market::speed_between(figures.samples_per_s, to.figures.samples_per_s);
  for (const auto& [kind, past] : s.config.past.rates)
    if (past.work == work && !measured.contains(kind))
      to.speeds[kind] = market::speed_between(past.samples_per_s, to.figures.samples_per_s);
}

// Who runs under a manager before may yet join this one.
bool nodes_return(const broker_state& s, double joined_s) {
  return s.config.past.until_s > 0 && joined_s < s.begun_wall_s + return_s(s.config.interval);
}

void note_billed(broker_state& s, const std::string& name, double now_s) {
  if (nodes_return(s, now_s - return_s(s.config.interval))) // and for as long again: what was lost is looked at later
    s.billed.insert(name);
}

// One that joins soon after the broker began, and is not billed yet, may have joined a manager before, since whose last
// record it has not been heard of.
market::rented_instance instance_of(const broker_state& s, const rented_worker& x, double joined_s) {
  const auto seconds = [](std::uint64_t ms) { return static_cast<double>(ms) / 1000; };
  const bool had_another = nodes_return(s, joined_s) && !s.billed.contains(x.name);
  return {x.name,
          x.pool,
          joined_s,
          x.leaving,
          seconds(x.ages.process_ms),
          seconds(x.ages.machine_ms),
          had_another ? std::max(joined_s - s.config.past.until_s, 0.0) : 0};
}

// What a node says of itself is no bill for what the pool has not.
bool is_of_a_pool(const broker_state& s, const rented_worker& x) {
  const auto pool = std::ranges::find(s.config.pools, x.pool, &instance_pool::name);
  return pool != s.config.pools.end() && x.slots == pool->slots;
}

// By prices as they are, and by the speed of the last job that trained the same.
market::budget_words words_on(const broker_state& s, const job_specification& job) {
  market::renting_job x;
  x.budget = market::budget_of(job.budget);
  x.least = job.min_instances;
  x.samples_left = static_cast<double>(job.steps - std::min(job.resume.steps, job.steps)) * job.global_batch;
  take_figures(x, {{}, job, 0, {}}, s);
  auto pools = s.config.pools;
  double fastest = 1;
  bool is_known = true; // of all kinds
  for (const auto& pool : pools) {
    is_known &= x.kind.empty() || x.speeds.contains(pool.kind);
    fastest = std::max(fastest, market::speed_of(pool.kind, x, pools));
  }
  if (!is_known)
    x.figures = {};
  for (auto& rate : x.figures.samples_per_s)
    rate *= fastest;
  for (auto& pool : pools)
    pool.usd_per_h = s.bill->record().usd_per_h.at(pool.name);
  return market::words_on(x, pools);
}

market::renting_facts facts_from(const broker_state& s, const market_facts& x, time_point now, double now_s) {
  market::renting_facts result;
  result.now_s = now_s;
  for (const auto& worker : x.workers) {
    if (!is_of_a_pool(s, worker) || std::ranges::count(result.instances, worker.pool, &market::rented_instance::pool) >=
                                        std::ranges::find(s.config.pools, worker.pool, &instance_pool::name)->most)
      continue;
    result.instances.push_back(instance_of(s, worker, now_s - seconds_before(now, worker.joined)));
  }
  result.quotes = s.feed.quotes;
  if (!x.job)
    return result;
  const auto& job = *x.job;
  auto& to = result.job.emplace();
  to.id = job.id.value;
  to.budget = market::budget_of(job.specification.budget);
  to.submitted_s = static_cast<double>(job.submitted_ms) / 1e3;
  const auto done = job.picture.view ? job.picture.view->steps_done : job.specification.resume.steps;
  to.samples_left = static_cast<double>(job.specification.steps - std::min(done, job.specification.steps)) *
                    job.specification.global_batch;
  const auto& spent = s.bill->record().jobs;
  if (const auto found = spent.find(to.id); found != spent.end())
    to.spent_usd = found->second;
  to.least = job.specification.min_instances;
  to.has_begun = job.picture.view && done > job.specification.resume.steps;
  take_figures(to, job, s);
  return result;
}

// Since when it is to be billed: not again what it was, if its connection had ended and it returned.
double from_s(const broker_state& s, const std::string& instance, double since_s) {
  const auto until = s.billed_until_s.find(instance);
  return until == s.billed_until_s.end() ? since_s : std::max(since_s, until->second);
}

// What has come is billed from its start, what has gone no more.
void keep_ledger(broker_state& s, const market::renting_facts& x) {
  std::map<std::string, std::string> living;
  const auto is_known = [&](const std::string& pool) {
    return std::ranges::find(s.config.pools, pool, &instance_pool::name) != s.config.pools.end();
  };
  for (const auto& i : x.instances)
    if (is_known(i.pool)) {
      living[i.name] = i.pool;
      if (const auto since_s = s.rents->paid_since_s(i.name)) {
        s.bill->begin(i.name, i.pool, from_s(s, i.name, *since_s));
        note_billed(s, i.name, x.now_s);
      }
    }
  s.bill->keep_only(living);
}

// Each until it ended; what came and went since the last look as well.
void bill_gone(broker_state& s, const market_facts& x, time_point now, double now_s) {
  for (const auto& i : x.gone) {
    const double ended_s = now_s - seconds_before(now, i.ended), joined_s = now_s - seconds_before(now, i.joined);
    if (std::ranges::find(x.workers, i.name, &rented_worker::name) != x.workers.end()) // it has returned
      continue;
    if (s.bill->record().running.contains(i.name))
      s.bill->end(i.name, ended_s);
    else if (is_of_a_pool(s, i))
      s.bill->add(i.pool, std::max(ended_s - from_s(s, i.name, s.rents->began_s(instance_of(s, i, joined_s))), 0.0));
    s.billed_until_s[i.name] = ended_s;
    note_billed(s, i.name, now_s);
  }
  std::erase_if(s.billed_until_s, [&](const auto& i) { return now_s - i.second > remembered_s; });
}

// -1: never.
std::int64_t wall_us(double since_submission_s, const rented_for& job) {
  if (since_submission_s > 1e9)
    return -1;
  return job.submitted_ms * 1000 + static_cast<std::int64_t>(since_submission_s * 1e6);
}

market_status status_of(const broker_state& s, const market::renting_order& order, const rented_for* job) {
  market_status result;
  const auto& bill = s.bill->record();
  for (const auto& pool : s.config.pools) {
    const auto ordered = std::ranges::find(order.pools, pool.name, &pool_order::name);
    const auto why = s.why.find(pool.name);
    auto& shown = result.pools.emplace_back();
    shown.name = pool.name;
    shown.place = pool.place;
    shown.spot = pool.spot;
    if (const auto price = bill.usd_per_h.find(pool.name); price != bill.usd_per_h.end())
      shown.usd_per_h = price->second;
    if (ordered != order.pools.end()) {
      shown.want = ordered->want;
      shown.have = static_cast<std::uint32_t>(ordered->have.size());
    }
    if (const auto paid = bill.pools.find(pool.name); paid != bill.pools.end()) {
      shown.hours = paid->second.hours;
      shown.usd = paid->second.usd;
    }
    if (why != s.why.end())
      shown.why = why->second;
    if (const auto missing = order.missing.find(pool.name); missing != order.missing.end() && shown.why.empty())
      shown.why = missing->second;
  }
  result.usd = bill.usd;
  result.why = order.why;
  result.spent = order.money_is_spent;
  result.feed = s.feed.problem;
  result.hook = s.hook.problem;
  if (!job)
    return result;
  result.job = job->id.value;
  if (const auto spent = bill.jobs.find(result.job); spent != bill.jobs.end())
    result.job_usd = spent->second;
  if (const auto deadline_ms = job->specification.budget.deadline_ms; deadline_ms > 0)
    result.deadline_us = (job->submitted_ms + static_cast<std::int64_t>(deadline_ms)) * 1000;
  if (order.decision) {
    const auto& x = *order.decision;
    result.usd_per_sample = x.usd_per_sample;
    result.expected_usd = x.expected_usd;
    result.expected_us = wall_us(x.expected_finish_s, *job);
    result.expected_usd_spread = {x.usd_spread.p10, x.usd_spread.p50, x.usd_spread.p90};
    result.expected_us_spread = {wall_us(x.finish_s_spread.p10, *job), wall_us(x.finish_s_spread.p50, *job),
                                 wall_us(x.finish_s_spread.p90, *job)};
    result.reserve = x.is_reserve;
    for (const auto& other : x.runners_up)
      result.runners_up.push_back(fmt::format("{} at ${:.2f} an hour", s.rents->text_of(other.what), other.usd_per_h));
  }
  return result;
}

double spent_on(const broker_state& s, job_id job) {
  const auto& all = s.bill->record().jobs;
  const auto found = all.find(job.value);
  return found == all.end() ? 0 : found->second;
}

// Where it can go on from: what is trained now is put on disk first.
void stop(broker_pointer self, const rented_for& job) {
  auto& s = self->state;
  const auto now = self->clock().now();
  if (s.stopped != job.id) {
    s.stopped = job.id;
    s.stop_at = now + stop_intervals * s.config.interval;
    s.kept_steps.reset();
    if (job.picture.view) {
      s.kept_steps = job.picture.view->protected_version.steps; // which is what will be on disk
      self->request(s.config.registry, facts_limit, client_request{encode(request{checkpoint_request{job.id.value}})})
          .then([](const client_reply&) {}, [](const caf::error&) {});
    }
  }
  const bool is_kept = s.kept_steps && job.picture.view && job.picture.view->checkpoint_steps >= *s.kept_steps;
  if (is_kept || !s.kept_steps || now >= s.stop_at)
    self->send(s.config.registry,
               stop_job{job.id, fmt::format("the money is spent: ${:.2f} of ${:.2f}; `parcae submit --resume` with a "
                                            "larger budget.total goes on from its newest checkpoint",
                                            spent_on(s, job.id), job.specification.budget.total_usd)});
}

void tell(broker_state& s, const market::renting_order& order) {
  if (const bool is_late = order.late_s >= 1; std::exchange(s.is_late, is_late) != is_late)
    spdlog::log(is_late ? spdlog::level::warn : spdlog::level::info, "market: {}{}",
                is_late ? "" : "in time again: ", order.why);
  std::string holding;
  for (const auto& pool : order.pools)
    if (pool.want > 0)
      holding += fmt::format("{}{} of {}", holding.empty() ? "" : ", ", pool.want, pool.name);
  if (std::exchange(s.said, holding) != holding)
    spdlog::info("market: {} wanted: {}; spent ${:.2f}", holding.empty() ? "nothing" : holding, order.why,
                 s.bill->record().usd);
}

// Instances that are there, and under no notice when the order is carried out.
std::size_t stay(const market_facts& x, const market::renting_order& order) {
  std::size_t result = 0;
  for (const auto& pool : order.pools)
    result += static_cast<std::size_t>(std::ranges::count_if(pool.have, [&](const auto& name) {
      const auto worker = std::ranges::find(x.workers, name, &rented_worker::name);
      return worker != x.workers.end() && !worker->leaving &&
             std::ranges::find(order.let_go, name) == order.let_go.end();
    }));
  return result;
}

// Long enough to end a step, and to bring all state to the keepers: the conductor trains on until just that is left.
std::uint64_t shortest_notice_ms(const market_facts& x) {
  constexpr double least_ms = 1'000, margin = 4;
  if (!x.job || !x.job->picture.view)
    return static_cast<std::uint64_t>(least_ms);
  const auto& view = *x.job->picture.view;
  double bytes = 0;
  for (const auto layer : facts_of(x.job->specification).state_bytes)
    bytes += static_cast<double>(layer);
  return static_cast<std::uint64_t>(
      std::clamp(least_ms + margin * (view.step_ms + bytes / view.known.figures.link_bytes_per_ms), least_ms,
                 static_cast<double>(longest_notice_ms)));
}

// Where others stay, or come, who goes trains until they have what is needed of it. Where nobody does it would train
// on, and be paid, for as long as it may: it stops soon, and so do those that were let go before.
void let_go(broker_pointer self, const market_facts& x, const market::renting_order& order) {
  give_back notice{order.let_go, longest_notice_ms};
  if (stay(x, order) == 0) {
    notice.notice_ms = shortest_notice_ms(x);
    for (const auto& worker : x.workers)
      if (worker.leaving)
        notice.names.push_back(worker.name);
  }
  if (!notice.names.empty())
    self->send(self->state.config.registry, std::move(notice));
}

// Only who is there: instances of two places never train together.
void train_there(broker_pointer self) {
  const auto& s = self->state;
  self->send(s.config.registry, train_with{s.rents->pools_of(s.rents->place())});
}

// Who comes to the job before who goes: it moves from one to the other.
void carry_out(broker_pointer self, const market_facts& x, const market::renting_order& order) {
  auto& s = self->state;
  train_there(self);
  let_go(self, x, order);
  if (order.pools == s.provided)
    return;
  s.provided = order.pools;
  s.config.provide(++s.request, order.pools);
}

void show(broker_pointer self, const market_facts& x, const market::renting_order& order) {
  self->send(self->state.config.registry,
             market_picture{std::make_shared<const market_status>(status_of(self->state, order, x.job.get()))});
}

// Nothing is asked for or given back.
void leave_as_it_is(broker_pointer self, const market_facts& x, const market::renting_facts& facts, std::string why) {
  market::renting_order order;
  order.why = std::move(why);
  for (const auto& pool : self->state.config.pools) {
    auto& shown = order.pools.emplace_back();
    shown.name = pool.name;
    for (const auto& i : facts.instances)
      if (i.pool == pool.name)
        shown.have.push_back(i.name);
    shown.want = static_cast<std::uint32_t>(shown.have.size());
  }
  show(self, x, order);
}

void rent(broker_pointer self, const market_facts& x, market::renting_facts facts) {
  auto& s = self->state;
  if (const auto missing = s.bill->waits_for(); missing > 0)
    return leave_as_it_is(self, x, facts,
                          fmt::format("nothing is asked for or given back yet: {} of {} by the ledger may be on the "
                                      "way back to this manager",
                                      counted(missing, "instance"), s.bill->record().running.size()));
  facts.words = std::exchange(s.hook.words, {});
  auto order = s.rents->decide(facts);
  s.bill->set_place(order.place);
  s.bill->pay(order.way_usd);
  keep_ledger(s, facts);
  const auto* view = x.job ? x.job->picture.view.get() : nullptr;
  if (order.money_is_spent && view) // it needs its instances until it has stopped
    stop(self, *x.job);
  else if (view && view->known.keepers == 0 && !order.let_go.empty() && stay(x, order) == 0)
    order.why = "no keeper: what trains stays, as all would be lost with it";
  else
    carry_out(self, x, order);
  tell(s, order);
  show(self, x, order);
}

// The ledger first. A manager that leads no more cannot write it, and so neither asks for nor gives back anything.
void keep_and_rent(broker_pointer self, const market_facts& x) {
  auto& s = self->state;
  const double now_s = wall_s(s, self->clock().now());
  bill_gone(s, x, self->clock().now(), now_s);
  s.bill->advance(now_s, x.job ? x.job->id.value : 0);
  for (const auto& pool : s.config.pools) {
    const auto quote = std::ranges::find(s.feed.quotes, pool.name, &pool_quote::pool);
    s.bill->set_price(pool.name, quote != s.feed.quotes.end() ? quote->usd_per_h : *pool.usd_per_h);
  }
  if (x.job && is_measured(x.job->picture))
    s.known[x.job->picture.view->kind] = x.job;
  const auto facts = facts_from(s, x, self->clock().now(), now_s);
  keep_ledger(s, facts);
  if (x.job && is_measured(x.job->picture))
    s.bill->set_rates(facts.job->kind, {work_of(x.job->specification), facts.job->figures.samples_per_s});
  if (!s.config.journal) {
    s.is_deciding = false;
    return rent(self, x, facts);
  }
  self->request(s.config.journal, ledger_limit, journal_entries{{entry_of(s.bill->record())}, true})
      .then(
          [=] {
            self->state.is_deciding = false;
            rent(self, x, facts);
          },
          [=](const caf::error&) { // told by the journal
            self->state.is_deciding = false;
            leave_as_it_is(self, x, facts,
                           "nothing is asked for or given back: the ledger cannot be written, see the manager's log");
          });
}

} // namespace

broker_actor::behavior_type broker(broker_pointer self, broker_config config) {
  auto& s = self->state;
  const double interval_s = std::chrono::duration<double>(config.interval).count();
  s.rents.emplace(config.pools, config.paths, interval_s, told_courses, config.past.place);
  s.bill.emplace(config.fixed_usd_per_h, config.past, return_s(config.interval));
  s.config = std::move(config);
  for (const auto& pool : s.config.pools)
    if (!s.bill->record().usd_per_h.contains(pool.name))
      s.bill->set_price(pool.name, *pool.usd_per_h);
  s.begun = self->clock().now();
  for (const auto& [instance, pool] : s.config.past.running)
    s.billed.insert(instance);
  s.begun_wall_s = static_cast<double>(s.config.wall_us ? s.config.wall_us() : wall_clock_us()) / 1e6;
  train_there(self); // who returns meanwhile
  self->send(self, timer_atom_v);
  return {
      [=](timer_atom) {
        auto& s = self->state;
        self->delayed_send(self, s.config.interval, timer_atom_v);
        if (std::exchange(s.is_deciding, true))
          return;
        self->request(s.config.registry, facts_limit, market_question{})
            .then([=](const market_facts& x) { keep_and_rent(self, x); },
                  [=](const caf::error&) { self->state.is_deciding = false; }); // a job is ending
      },
      [=](const feed_news& x) {
        if (!x.problem.empty() && x.problem != self->state.feed.problem)
          spdlog::warn("market: {}", x.problem);
        self->state.feed = x;
      },
      [=](const hook_news& x) {
        auto& s = self->state;
        if (!x.problem.empty() && x.problem != s.hook.problem)
          spdlog::warn("market: {}", x.problem);
        s.hook = x;
        for (const auto& word : x.words)
          s.why[word.pool] = word.why;
        if (x.request != s.request) // of what was wanted before
          s.hook.words.clear();
      },
      [=](const budget_question& x) { return budget_answer{words_on(self->state, *x.job)}; },
  };
}

} // namespace parcae
