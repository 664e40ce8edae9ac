#include "tests/simulation/schedule.hpp"

#include "actors/conductor/model_facts.hpp"
#include "tests/simulation/harm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <stdexcept>

namespace parcae::simulation {

namespace {

constexpr std::size_t max_lines = 5;    ///< of problems; the first is what counts
constexpr nanoseconds patience = 15min; ///< with a cluster that is left in peace

job_specification job_for(dice& chance, dice user) {
  job_specification job;
  job.model = {.kind = "mlp",
               .layers = 1 + static_cast<std::uint32_t>(chance.below(3)),
               .width = 8,
               .sequence = 4,
               .vocabulary = 8};
  job.data.kind = "synthetic";
  job.data.samples = 1024;
  job.global_batch = 8;
  job.micro_batch = 1;
  job.virtual_replicas = 4;
  job.steps = 15 + chance.below(35);
  const auto every = chance.below(9);
  job.keeper_every = every < 3 ? 0 : every - 2; // a third of them as often as links allow
  job.keeper_copies = 1 + static_cast<std::uint32_t>(chance.below(2));
  job.checkpoint_every = chance.percent(30) ? 5 : 0;
  job.max_depth = 1 + static_cast<std::uint32_t>(chance.below(3));
  job.min_depth = 1 + static_cast<std::uint32_t>(chance.below(job.max_depth));
  job.max_width = 4;
  job.policy = chance.percent(10) ? "liveput" : "throughput";
  job.look_ahead = 2;
  if (user.percent(40)) {
    job.evaluate_every = 1 + user.below(6);
    job.data.validation = 8;
    job.patience = user.percent(50) ? 2 + static_cast<std::uint32_t>(user.below(6)) : 0;
  }
  if (const auto problem = problem_of(job); !problem.empty())
    throw std::logic_error("the job cannot run: " + problem);
  return job;
}

cluster_options options_for(std::uint64_t seed, fault wrong, bool tells) {
  dice chance(~seed);
  cluster_options result;
  result.seed = seed;
  result.wrong = wrong;
  result.tells = tells;
  result.job = job_for(chance, dice(seed ^ 0x7feb352du));
  result.data.step = chance.between(50ms, 500ms);
  const auto bytes = facts_of(result.job).state_bytes;
  const auto all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  const auto whole = chance.percent(60) ? 0ns : chance.between(1ms, chance.percent(70) ? 200ms : 6s);
  for (const auto x : bytes)
    result.data.shards.emplace_back(
        static_cast<std::int64_t>(static_cast<double>(whole.count()) * static_cast<double>(x) / all));
  result.network.usual = chance.between(200us, chance.percent(20) ? 100ms : 5ms);
  result.network.most = chance.between(100ms, 900ms);
  result.standby = chance.percent(25);
  result.feeds = dice(seed ^ 0x2c1b3c6du).percent(70);
  result.wake = chance.percent(10) || wrong == fault::last_version_unsent ? 200ms : 2ms;
  return result;
}

// Until its end nothing is done to it, and whoever is missing comes back.
void leave_in_peace(cluster& c, harm& h) {
  c.note("peace");
  c.heal_all();
  for (const auto& name : c.keepers())
    if (!c.nodes().contains(name))
      c.start_node(name, true, 1);
  h.start_keeper();
  const auto revive = [&] {
    c.start_manager();
    std::size_t workers = 0;
    for (const auto& [name, x] : c.nodes())
      workers += !x->keeper && !x->leaving;
    for (const auto& name : c.keepers())
      if (!c.nodes().contains(name))
        c.start_node(name, true, 1);
    for (; workers < 3; ++workers)
      c.start_node("fresh" + std::to_string(c.chance().number() % 1'000'000), false, 1);
  };
  const auto end = c.time().now() + patience;
  while (c.time().now() < end && !c.is_over() && c.sees().problems().empty()) {
    revive();
    c.time().run_until(c.time().now() + 5s, [&] { return c.is_over() || !c.sees().problems().empty(); });
  }
  if (!c.is_over())
    c.sees().object("the job does not end, though nothing is done to it");
}

// That the job is over: its manager may have died of saying so.
void let_all_hear(cluster& c) {
  for (int seconds = 0; seconds < (c.has_standby() ? 16 : 8); ++seconds) {
    if (!c.has_manager()) {
      c.start_manager();
      seconds = 0;
    }
    c.time().run_until(c.time().now() + 1s, [] { return false; });
  }
}

/// At the last step but one.
bool is_about_to_end(cluster& c, const job_specification& job) {
  const auto& all = c.sees().seen().generations;
  const auto known = all.find(c.sees().seen().newest_begun);
  return known != all.end() && known->second.begun.contains(job.steps - 2);
}

} // namespace

schedule_outcome run_schedule(std::uint64_t seed, fault wrong, bool tells) {
  const auto options = options_for(seed, wrong, tells);
  cluster c(options);
  auto& chance = c.chance();
  const bool large = chance.percent(3);
  harm h(c, large ? 24 + chance.below(12) : 2 + chance.below(7), 1 + chance.below(3), wrong);
  const auto begun = c.time().now();
  schedule_outcome result;
  bool ends_in_a_hurry = options.wake > 2ms;
  const auto stop = [&] {
    if (ends_in_a_hurry && is_about_to_end(c, options.job)) {
      ends_in_a_hurry = false;
      c.time().after(0ns, [&] { h.hurry(2 * options.data.step); });
    }
    return c.is_over() || !c.sees().problems().empty();
  };
  c.start_manager();
  if (dice user(seed ^ 0x5bd1e995u); user.percent(4))
    c.time().after(user.between(10ms, 30s), [&c] {
      if (!c.is_over())
        c.cancel();
    });
  for (auto left = large ? 24 : 1 + chance.below(4); left > 0; --left)
    h.start_worker();
  if (chance.percent(90))
    h.start_keeper();
  if (chance.percent(50))
    h.start_keeper();
  c.time().run_until(begun + chance.between(100ms, 4s), stop);
  const auto until = begun + chance.between(5s, 40s);
  const auto pause = chance.between(100ms, 6s);
  while (c.time().now() < until && !stop()) {
    ++result.harms;
    h.do_something();
    c.time().run_until(c.time().now() + chance.between(0ms, chance.percent(20) ? 20ms : pause), stop);
  }
  if (c.sees().problems().empty() && !c.is_over())
    leave_in_peace(c, h);
  result.virtual_s = std::chrono::duration<double>(c.time().now() - begun).count();
  for (const auto& [g, x] : c.sees().seen().generations)
    result.generations += x.base.has_value();
  const auto& end = c.sees().seen().durable;
  const bool is_cancelled = c.is_cancelled() && (end.why == "cancelled" || !end.over);
  const bool has_no_data = end.data_digest.empty() && end.why.find(lost_data) != end.why.npos; // nobody ever had
  if (c.sees().problems().empty() && !end.good && !is_cancelled && !has_no_data)
    c.sees().object("the job ends, but is not done: " + end.why);
  if (c.sees().problems().empty()) {
    c.heal_all();
    let_all_hear(c);
    c.look_for_leaks();
  }
  result.problems = c.sees().problems();
  result.problems.resize(std::min(result.problems.size(), max_lines));
  result.digest = c.digest();
  result.messages = c.time().messages();
  return result;
}

} // namespace parcae::simulation
