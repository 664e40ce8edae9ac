#include "actors/conductor/model_facts.hpp"
#include "tests/simulation/harm.hpp"
#include "tests/simulation/schedule.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <stdexcept>

// Schedules of a job that serves: it has no end of its own, so what counts is that it serves when it is left in peace.

namespace parcae::simulation {

namespace {

constexpr nanoseconds patience_with_service = 15min;

job_specification service_for(dice& chance) {
  job_specification job;
  job.kind = "serve";
  job.optimizer.kind = "none";
  job.model = {.kind = "gpt",
               .layers = 1 + static_cast<std::uint32_t>(chance.below(3)),
               .width = 8,
               .heads = 2,
               .sequence = 64,
               .vocabulary = 16};
  job.serve.cache_bytes = 1 << 20;
  job.max_depth = 1 + static_cast<std::uint32_t>(chance.below(3));
  job.min_depth = 1 + static_cast<std::uint32_t>(chance.below(job.max_depth));
  job.max_width = 4;
  if (const auto problem = problem_of(job); !problem.empty())
    throw std::logic_error("the job cannot run: " + problem);
  return job;
}

cluster_options options_of_service(std::uint64_t seed, fault wrong, bool tells) {
  dice chance(~seed);
  cluster_options result;
  result.seed = seed;
  result.wrong = wrong;
  result.tells = tells;
  result.job = service_for(chance);
  const auto bytes = facts_of(result.job).state_bytes;
  const auto all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  const auto whole = chance.percent(60) ? 0ns : chance.between(1ms, chance.percent(70) ? 200ms : 6s);
  for (const auto x : bytes)
    result.data.shards.emplace_back(
        static_cast<std::int64_t>(static_cast<double>(whole.count()) * static_cast<double>(x) / all));
  result.network.usual = chance.between(200us, chance.percent(20) ? 100ms : 5ms);
  result.network.most = chance.between(100ms, 900ms);
  result.standby = chance.percent(25);
  if (chance.percent(70)) { // else nothing is asked for, and plans are the grid's
    for (auto left = 1 + chance.below(5); left > 0; --left)
      result.comes.per_s.push_back(std::array{0.0, 0.1, 20.0, 60.0, 150.0, 1000.0}[chance.below(6)]);
    result.comes.each = chance.between(1s, 20s);
    result.job.planning_interval_ms = static_cast<std::uint64_t>(chance.between(500ms, 10s) / 1ms);
  }
  return result;
}

/// How the job is, without what was.
job_status status_now(cluster& c) {
  return c.status({.changes_from = UINT64_MAX,
                   .events_from = UINT64_MAX,
                   .decisions_from = UINT64_MAX,
                   .losses_from = UINT64_MAX,
                   .news_from = UINT64_MAX,
                   .failures_from = UINT64_MAX});
}

/// The gateway in use goes by the generation that runs, as the manager knows it.
bool serves_now(cluster& c) {
  if (!c.has_manager())
    return false;
  const auto job = status_now(c);
  const auto answers = c.nodes().find(job.gateway);
  if (job.state != "running" || job.phase != "running" || job.width == 0 || answers == c.nodes().end() ||
      !answers->second->answers)
    return false;
  const auto* way = answers->second->answers->goes_by();
  return way && way->current.value == job.generation && way->target.width == job.width;
}

void revive(cluster& c, harm& h) {
  c.start_manager();
  h.start_gateway();
  std::size_t workers = 0;
  for (const auto& [name, x] : c.nodes())
    workers += !x->keeper && !x->gateway && !x->leaving;
  for (; workers < 3; ++workers)
    c.start_node("fresh" + std::to_string(c.chance().number() % 1'000'000), false, 1);
}

/// Nothing is done to it, and who is missing comes back: it serves, and goes on with that.
void let_it_serve(cluster& c, harm& h) {
  c.note("peace");
  c.heal_all();
  const auto end = c.time().now() + patience_with_service;
  int calm = 0; // times in a row
  while (c.time().now() < end && calm < 5 && c.sees().problems().empty() && !c.is_over()) {
    revive(c, h);
    c.time().run_until(c.time().now() + 1s, [] { return false; });
    calm = serves_now(c) ? calm + 1 : 0;
  }
  if (calm < 5 && !c.is_over())
    c.sees().object("the job does not serve, though nothing is done to it");
}

/// And each request that was there then has all its tokens some time later.
void let_requests_end(cluster& c, harm& h) {
  const auto open = [&] {
    const auto x = c.nodes().find(status_now(c).gateway);
    return x == c.nodes().end() || !x->second->answers ? std::set<std::uint64_t>() : x->second->answers->open();
  };
  const auto end = c.time().now() + patience_with_service;
  for (auto left = open(); !left.empty();) {
    if (c.time().now() >= end)
      return c.sees().object("request " + std::to_string(*left.begin()) + " gets no more tokens");
    revive(c, h);
    c.time().run_until(c.time().now() + 1s, [] { return false; });
    const auto now = c.has_manager() ? open() : left;
    std::erase_if(left, [&](const auto& id) { return !now.contains(id); });
  }
}

void end_it(cluster& c) {
  c.cancel();
  const auto end = c.time().now() + patience_with_service;
  while (c.time().now() < end && !c.is_over() && c.sees().problems().empty()) {
    c.start_manager();
    c.time().run_until(c.time().now() + 1s, [&] { return c.is_over(); });
  }
  if (!c.is_over())
    c.sees().object("the job is cancelled, and does not end");
  for (int seconds = 0; seconds < (c.has_standby() ? 16 : 8); ++seconds) {
    if (!c.has_manager()) {
      c.start_manager();
      seconds = 0;
    }
    c.time().run_until(c.time().now() + 1s, [] { return false; });
  }
}

/// A notice that suffices, if others are there who can take over; or a join.
void do_gently(cluster& c, harm& h) {
  std::vector<node_ptr> stay;
  for (const auto& [name, x] : c.nodes())
    if (!x->keeper && !x->gateway && !x->leaving)
      stay.push_back(x);
  if (stay.size() <= 4 || c.chance().percent(40))
    h.start_worker();
  else
    c.give_notice(c.chance().one_of(stay), std::chrono::milliseconds(5'000 + c.chance().below(10'000)));
}

void look_for_repeated(cluster& c) {
  for (const auto& [name, x] : c.nodes())
    if (x->answers && x->answers->counts().repeated > 0)
      c.sees().object(std::to_string(x->answers->counts().repeated) +
                      " positions are computed twice, though all notices sufficed");
}

} // namespace

schedule_outcome run_service_schedule(std::uint64_t seed, fault wrong, bool tells) {
  const bool gently = seed % 4 == 0;
  auto options = options_of_service(seed, wrong, tells);
  if (gently)
    options.data.shards.clear(); // notices suffice
  cluster c(options);
  auto& chance = c.chance();
  harm h(c, gently ? 7 : 2 + chance.below(7), 1, fault::none);
  const auto begun = c.time().now();
  schedule_outcome result;
  const auto stop = [&] { return !c.sees().problems().empty(); };
  c.start_manager();
  for (auto left = 1 + chance.below(4); left > 0; --left)
    h.start_worker();
  if (gently || chance.percent(80))
    h.start_gateway();
  if (chance.percent(20))
    h.start_keeper();
  c.time().run_until(begun + chance.between(100ms, 4s), stop);
  const auto until = begun + chance.between(5s, 40s);
  const auto pause = chance.between(100ms, 6s);
  while (c.time().now() < until && !stop()) {
    ++result.harms;
    gently ? do_gently(c, h) : h.do_something_to_service();
    c.time().run_until(c.time().now() +
                           (gently ? chance.between(5s, 9s) : chance.between(0ms, chance.percent(20) ? 20ms : pause)),
                       stop);
  }
  if (!stop())
    let_it_serve(c, h);
  if (!stop())
    let_requests_end(c, h);
  if (!stop() && gently)
    look_for_repeated(c);
  if (!stop())
    end_it(c);
  for (const auto& [g, x] : c.sees().seen().generations)
    result.generations += x.base.has_value();
  const auto& last = c.sees().seen().durable;
  const bool has_no_weights = last.data_digest.empty() && last.why.find(lost_data) != last.why.npos; // nobody ever had
  if (!stop() && last.over && last.why != "cancelled" && !has_no_weights)
    c.sees().object("the job ends by itself: " + last.why);
  if (!stop()) {
    c.heal_all();
    c.look_for_leaks();
  }
  result.virtual_s = std::chrono::duration<double>(c.time().now() - begun).count();
  result.problems = c.sees().problems();
  result.problems.resize(std::min<std::size_t>(result.problems.size(), 5));
  result.digest = c.digest();
  result.messages = c.time().messages();
  return result;
}

} // namespace parcae::simulation
