// A model that is served by real processes while workers come and go, against what its clients would have without
// Parcae: latencies under losses, gaps in streams, stalls of changes, and ten times too many requests. Arguments: parts
// of it (all): latency, gap, stall, overload; --seconds of each course of latencies.

#include "tests/bench/bench_service.hpp"
#include "tests/bench/event_clients.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/machine_watch.hpp"
#include "tests/bench/service_load.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>

namespace parcae {
namespace {

using namespace std::chrono_literals;

constexpr double loss_ms = 10'000; ///< from one loss to the next

/// Requests a second that some clients get answered, each asking for the next when it has the last.
double capacity_of(std::uint16_t port, int clients, double seconds, int least, int most) {
  const service_course course;
  std::atomic<int> answered = 0;
  std::vector<std::jthread> all;
  for (int i = 0; i < clients; ++i)
    all.emplace_back([&, i] {
      std::mt19937_64 draw(100 + static_cast<std::uint64_t>(i));
      while (course.now_ms() < seconds * 1e3)
        if (course.ask(port, drawn_wish(draw, served_name, least, most)).status == 200)
          ++answered;
    });
  all.clear();
  return answered / course.now_ms() * 1e3;
}

// --- latencies

constexpr int least_tokens = 64, most_tokens = 192;

struct course_of_losses {
  std::vector<timed_request> requests;
  double end_ms = 0;
};

/// Kills and notices by turns, from 5 s on.
void disturb(const service_course& course, double end_ms, const std::function<void(int)>& lose) {
  int n = 0;
  for (auto at = loss_ms / 2; at < end_ms; at += loss_ms) {
    course.wait_until(at);
    lose(n++);
  }
}

double p99_of(const std::string& what, const std::vector<timed_answer>& all) {
  const auto latencies = latencies_of(all);
  const auto p99 = percentile(latencies, 0.99);
  std::cerr << what << ": " << latencies.size() << " of " << all.size() << " answered, p50 "
            << percentile(latencies, 0.5) << ", p99 " << p99 << " ms\n";
  return latencies.size() == all.size() ? p99 : std::nan("");
}

enum class conduct {
  as_it_is,
  begins_anew,  ///< as if each change of generation ended all requests, which clients send again
  moves_nothing ///< who is under notice is killed at its end instead: caches are lost
};

std::vector<timed_answer> with_parcae(const course_of_losses& x, conduct how) {
  const bool begins_anew = how == conduct::begins_anew;
  bench_service at(served_job(), 4);
  at.wait_for_pipelines(4);
  std::atomic<std::uint64_t> generation = 0;
  const service_course course;
  std::jthread watcher([&](const std::stop_token& stop) {
    manager_client manager(at.cluster().access());
    while (!stop.stop_requested()) {
      for (const auto& job : manager.status({}).jobs)
        generation = job.generation;
      std::this_thread::sleep_for(20ms);
    }
  });
  auto answers = std::async(std::launch::async, [&] {
    return course.run(x.requests, [&](const completion_wish& wish) {
      for (;;) {
        const auto began = generation.load();
        auto answer = course.ask(at.port(), wish, [&] { return !begins_anew || generation == began; });
        if (answer.status != 0 || !begins_anew)
          return answer;
      }
    });
  });
  // Here, as what a thread starts ends with it.
  disturb(course, x.end_ms, [&](int n) {
    if (n % 2 == 1 && how != conduct::moves_nothing)
      return at.retire_worker();
    if (n % 2 == 1)
      std::this_thread::sleep_for(notice_time);
    at.kill_worker();
    at.start_worker();
  });
  auto result = answers.get();
  const auto told = at.told();
  std::cerr << "  " << told.generation << " generations, " << told.requests.recomputed << " positions again\n";
  return result;
}

/// A replica for each worker, and clients who choose the one with the fewest requests and ask again when it has gone;
/// under notice it gets no new ones.
std::vector<timed_answer> with_replicas(const course_of_losses& x) {
  struct replica {
    bench_service at{served_job(), 1};
    bool open = true;
    int requests = 0;
  };
  std::vector<std::unique_ptr<replica>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(std::make_unique<replica>());
  for (auto& each : all)
    each->at.wait_until_healthy();
  std::mutex mutex;
  const auto choose = [&]() -> replica* {
    const std::lock_guard lock(mutex);
    replica* best = nullptr;
    for (auto& each : all)
      if (each->open && (!best || each->requests < best->requests))
        best = each.get();
    if (best)
      ++best->requests;
    return best;
  };
  const service_course course;
  std::vector<std::jthread> returns;
  auto answers = std::async(std::launch::async, [&] {
    return course.run(x.requests, [&](const completion_wish& wish) {
      for (;;) {
        auto* one = choose();
        if (!one) {
          std::this_thread::sleep_for(5ms);
          continue;
        }
        auto answer = course.ask(one->at.port(), wish);
        {
          const std::lock_guard lock(mutex);
          --one->requests;
        }
        if (answer.status == 200)
          return answer;
      }
    });
  });
  disturb(course, x.end_ms, [&](int n) {
    auto& lost = *all[static_cast<std::size_t>(n) % all.size()];
    const auto close = [&](bool open) {
      const std::lock_guard lock(mutex);
      lost.open = open;
    };
    close(false);
    if (n % 2 == 1)
      std::this_thread::sleep_for(notice_time);
    lost.at.kill_replica();
    returns.emplace_back([&lost, close] {
      lost.at.wait_until_healthy();
      close(true);
    });
  });
  auto result = answers.get();
  return result;
}

void measure_latencies(double seconds, figures& out) {
  double per_s = 0;
  {
    bench_service at(served_job(), 4);
    at.wait_for_pipelines(4);
    capacity_of(at.port(), 16, 3, least_tokens, most_tokens); // warms up
    per_s = capacity_of(at.port(), 32, 15, least_tokens, most_tokens);
  }
  out.only_shown("four workers: answers a second at most", per_s);
  const course_of_losses x{drawn_requests(0.6 * per_s, seconds, served_name, least_tokens, most_tokens, 1),
                           seconds * 1e3};
  const auto ours = p99_of("ours", with_parcae(x, conduct::as_it_is));
  const auto unmoved = p99_of("nothing moves", with_parcae(x, conduct::moves_nothing));
  const auto sent_again = p99_of("clients send lost requests again", with_replicas(x));
  const auto anew = p99_of("all begins anew at each change", with_parcae(x, conduct::begins_anew));
  const std::string name = "a loss each 10 s: p99 of latency over that of ";
  out.at_most(name + "replicas whose clients send lost requests again", ours / sent_again, 0.8);
  out.at_most(name + "beginning all anew at each change", ours / anew, 0.8);
  out.at_most(name + "moving nothing", ours / unmoved, 1.0);
}

// --- gaps

constexpr int streams = 8;
constexpr double on_its_way_ms = 5; ///< tokens of who is dead

/// Streams without an end while one of two workers is killed again and again.
struct course_of_kills {
  struct kill {
    double at_ms = 0, detected_ms = 0, until_ms = 0; ///< until: the next generation has the present one stop
    std::uint64_t repeated = 0;                      ///< positions
  };
  std::vector<timed_answer> answers;
  std::vector<kill> kills;
  double calm_until_ms = 0; ///< the first kill
};

course_of_kills killed_again_and_again(bench_service& at, int kills) {
  course_of_kills result;
  const service_course course;
  const auto began_us = monotonic_us();
  std::atomic<bool> over = false;
  std::mutex mutex;
  std::vector<std::jthread> clients;
  for (int i = 0; i < streams; ++i)
    clients.emplace_back([&, i] {
      std::mt19937_64 draw(static_cast<std::uint64_t>(i));
      while (!over) {
        auto answer = course.ask(at.port(), drawn_wish(draw, served_name, 128, 384));
        const std::lock_guard lock(mutex);
        result.answers.push_back(std::move(answer));
      }
    });
  course.wait_until(10'000);
  result.calm_until_ms = course.now_ms();
  for (int k = 0; k < kills; ++k) {
    const auto before = at.told();
    course_of_kills::kill x{.at_ms = course.now_ms()};
    const auto name = at.kill_worker();
    std::this_thread::sleep_for(3s);
    const auto since_begin = [&](std::int64_t us) { return static_cast<double>(us - began_us) / 1e3; };
    const auto after = at.cluster().client().status({});
    for (const auto& y : after.instances)
      if (y.name == name && y.lost_at_us >= 0)
        x.detected_ms = since_begin(y.lost_at_us) - x.at_ms;
    for (const auto& change : at.told().changes)
      if (change.number >= before.change_count && x.until_ms == 0 && change.prepared_ms >= 0)
        x.until_ms = since_begin(change.at_us) + change.prepared_ms;
    at.start_worker();
    at.wait_for_pipelines(2);
    std::this_thread::sleep_for(2s);
    x.repeated = at.told().requests.recomputed - before.requests.recomputed;
    result.kills.push_back(x);
  }
  over = true;
  clients.clear();
  return result;
}

/// Of a position of a long prompt, alone.
double position_ms(const bench_service& at) {
  constexpr std::size_t positions = 448;
  std::vector<double> all;
  for (int i = 0; i < 9; ++i) {
    const service_course course;
    all.push_back(course.ask(at.port(), {served_name, positions, 1, i, 1.0}).latency_ms() / positions);
  }
  return median(all);
}

/// Gaps of a stream that begin in [from, to), and the one that has `from` within it.
std::vector<double> gaps_within(const timed_answer& x, double from, double to) {
  std::vector<double> result;
  for (std::size_t i = 1; i < x.tokens_ms.size(); ++i)
    if (x.tokens_ms[i] > from && x.tokens_ms[i - 1] < to)
      result.push_back(x.tokens_ms[i] - x.tokens_ms[i - 1]);
  return result;
}

void measure_gaps(int kills, figures& out) {
  bench_service at(served_job(), 2);
  at.wait_for_pipelines(2);
  const auto of_position = position_ms(at);
  const auto x = killed_again_and_again(at, kills);
  std::vector<double> calm, of_others, over_replay;
  for (const auto& answer : x.answers)
    std::ranges::copy(gaps_within(answer, 2'000, x.calm_until_ms), std::back_inserter(calm));
  for (const auto& kill : x.kills) {
    // Who was hit waited longer than everybody else: the streams in order of their gap then, cut where it grows most.
    std::vector<std::pair<double, const timed_answer*>> there;
    for (const auto& answer : x.answers)
      if (const auto gaps = gaps_within(answer, kill.at_ms, kill.at_ms + kill.detected_ms + on_its_way_ms);
          !gaps.empty())
        there.emplace_back(std::ranges::max(gaps), &answer);
    std::ranges::sort(there);
    std::size_t cut = 1;
    for (std::size_t i = 1; i < there.size(); ++i)
      if (there[i].first / there[i - 1].first > there[cut].first / there[cut - 1].first)
        cut = i;
    if (cut >= there.size())
      continue;
    const auto alone = kill.detected_ms + of_position * static_cast<double>(kill.repeated);
    over_replay.push_back(there.back().first / alone);
    std::cerr << "a kill: " << there.size() - cut << " of " << there.size() << " streams were hit, longest gap "
              << there.back().first << " ms, shortest of theirs " << there[cut].first << ", longest of others "
              << there[cut - 1].first << "; found after " << kill.detected_ms << ", " << kill.repeated
              << " positions again\n";
    for (std::size_t i = 0; i < cut; ++i)
      std::ranges::copy(gaps_within(*there[i].second, kill.at_ms, kill.until_ms), std::back_inserter(of_others));
  }
  const auto show = [](const char* whose, const std::vector<double>& gaps) {
    std::cerr << whose << ": " << gaps.size() << " gaps, p50 " << percentile(gaps, 0.5) << ", p90 "
              << percentile(gaps, 0.9) << ", p99 " << percentile(gaps, 0.99) << ", longest " << percentile(gaps, 1)
              << " ms\n";
  };
  show("undisturbed", calm);
  show("of others, after kills", of_others);
  out.at_most("a kill beside a whole pipeline: longest gap over detection and the replay alone", median(over_replay),
              1.5);
  out.at_most("a kill beside a whole pipeline: p99 of the others' gaps until the change, over theirs undisturbed",
              percentile(of_others, 0.99) / percentile(calm, 0.99), 1.5);
  out.only_shown("gaps undisturbed, p99, ms", percentile(calm, 0.99));
}

// --- stalls

/// Of notices to one of two workers while a third stands by, ms.
double stall_of_notices(const job_specification& job, int notices, bool with_clients) {
  bench_service at(job, 3);
  std::atomic<bool> over = false;
  std::vector<std::jthread> clients;
  const auto settled = [&] {
    at.cluster().wait_for("two ranks and a spare", 120s, [&](const auto& s) {
      const auto& x = job_of(s, s.jobs.back().id);
      return living(s, "worker") == 3 && x.phase == "running" && x.width == 2 && x.depth == 1;
    });
  };
  settled();
  const service_course course;
  if (with_clients)
    at.wait_until_healthy();
  for (int i = 0; with_clients && i < streams; ++i)
    clients.emplace_back([&, i] {
      for (std::mt19937_64 draw(static_cast<std::uint64_t>(i)); !over;)
        course.ask(at.port(), drawn_wish(draw, served_name, 128, 384));
    });
  std::vector<double> stalls;
  for (int i = 0; i < notices; ++i) {
    std::this_thread::sleep_for(2s);
    const auto before = at.told();
    const auto name = before.grid.at(static_cast<std::size_t>(i) % before.grid.size());
    at.retire(name.substr(0, name.find('/')));
    settled();
    for (const auto& change : at.told().changes)
      if (change.number >= before.change_count && change.trigger.starts_with("notice"))
        stalls.push_back(change.stall_ms);
  }
  over = true;
  clients.clear();
  std::cerr << (with_clients ? "serving" : "training") << ": stalls of " << stalls.size() << " notices, p50 "
            << percentile(stalls, 0.5) << " ms\n";
  return median(stalls);
}

void measure_stalls(int notices, figures& out) {
  auto serves = served_job(), trains = served_job();
  serves.max_width = trains.max_width = 2;
  trains.kind = "train";
  trains.serve = {};
  trains.optimizer = job_specification{}.optimizer;
  trains.steps = 1'000'000;
  trains.global_batch = 4;
  trains.micro_batch = 1;
  trains.data = {.kind = "synthetic"};
  const auto training = stall_of_notices(trains, notices, false);
  out.at_most("stall of a notice while it serves, over that while the same model trains",
              stall_of_notices(serves, notices, true) / training, 1.2);
}

// --- overload

struct overload_figures {
  std::vector<double> taken_ms, refused_ms;
  std::size_t others = 0;
};

overload_figures sum_of(const std::vector<timed_answer>& all) {
  overload_figures result;
  for (const auto& x : all)
    if (x.status == 200)
      result.taken_ms.push_back(x.latency_ms());
    else if (x.status == 429 || x.status == 503)
      result.refused_ms.push_back(x.latency_ms());
    else
      ++result.others;
  return result;
}

completion_wish overload_wish(std::mt19937_64& draw) {
  return drawn_wish(draw, served_name, 32, 96);
}

/// All places, and the queue, are taken all the time. Latencies, and answers a second.
std::pair<std::vector<double>, double> latencies_at_capacity(const bench_service& at, std::uint64_t clients,
                                                             double seconds) {
  std::vector<std::function<completion_wish()>> wishes;
  for (std::uint64_t i = 0; i < clients; ++i)
    wishes.emplace_back([draw = std::mt19937_64(i)]() mutable { return overload_wish(draw); });
  const service_course course;
  const auto answers = event_clients(at.port()).keep_asking(std::move(wishes), seconds);
  auto result = latencies_of(answers);
  const auto per_s = static_cast<double>(result.size()) / course.now_ms() * 1e3;
  return {std::move(result), per_s};
}

/// What the machine did meanwhile: who else had its processors delays everybody.
void tell(const std::string& when, const machine_watch& machine, figures& out) {
  for (const auto& [who, share] : machine.used())
    out.note(when + ": processors, " + who, share);
  out.note(when + ": the longest until a thread runs that was to, ms", machine.longest_delay_ms());
}

double share_of(const machine_watch::shares& all, const std::string& who) {
  return std::ranges::find(all, who, &machine_watch::shares::value_type::first)->second;
}

void measure_overload(double seconds, figures& out) {
  auto job = served_job();
  job.serve.batch = 8;
  job.serve.queue = 8;
  constexpr int taken_at_once = 2 * 8 + 8;
  bench_service at(job, 2);
  at.wait_for_pipelines(2);
  latencies_at_capacity(at, taken_at_once, 3);
  machine_watch first(at.processes());
  const auto [before, per_s] = latencies_at_capacity(at, taken_at_once, seconds / 3);
  const auto calm = first.used();
  tell("before", first, out);

  const auto requests = drawn_requests(10 * per_s, seconds, served_name, 32, 96, 7);
  machine_watch second(at.processes());
  const auto answers = event_clients(at.port()).ask(requests);
  const auto busy = second.used();
  tell("ten times as many requests", second, out);
  const auto flood = sum_of(answers);
  double late_ms = 0; // which the service is not asked to answer for
  for (std::size_t i = 0; i < answers.size(); ++i)
    late_ms = std::max(late_ms, answers[i].came_ms - requests[i].at_ms);
  out.note("ten times as many requests: the longest that a client was late, ms", late_ms);

  machine_watch third(at.processes());
  const auto [after, after_per_s] = latencies_at_capacity(at, taken_at_once, seconds / 3);
  tell("after", third, out);
  std::cerr << "overload: " << per_s << " a second at most; " << flood.taken_ms.size() << " taken, "
            << flood.refused_ms.size() << " refused\n";
  const auto usual = percentile(before, 0.99);
  out.at_most("ten times as many requests: p99 of those taken over that with all places taken",
              percentile(flood.taken_ms, 0.99) / usual, 1.5);
  out.only_shown("ten times as many requests: p50 of those taken over that with all places taken",
                 median(flood.taken_ms) / median(before));
  out.only_shown("ten times as many requests: until a refusal, p99, ms", percentile(flood.refused_ms, 0.99));
  out.at_most("ten times as many requests: the longest until a refusal, ms", percentile(flood.refused_ms, 1), 100);
  out.only_shown("ten times as many requests: processor time of a refusal in the gateway, ms",
                 (share_of(busy, "gateway") - share_of(calm, "gateway")) * seconds * 1e3 /
                     static_cast<double>(flood.refused_ms.size()));
  out.at_most("ten times as many requests: neither taken nor refused", static_cast<double>(flood.others), 0);
  out.between("p99 with all places taken, after over before", percentile(after, 0.99) / usual, 0.8, 1.25);
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  CLI::App app("A served model while workers come and go");
  std::vector<std::string> parts{"latency", "gap", "stall", "overload"};
  double seconds = 180;
  app.add_option("parts", parts);
  app.add_option("--seconds", seconds, "of each course of latencies");
  CLI11_PARSE(app, argc, argv);
  figures out;
  const auto has = [&](const char* part) { return std::ranges::find(parts, part) != parts.end(); };
  if (has("gap"))
    measure_gaps(36, out); // there are some four passes from a kill to the change: of fewer kills p99 is the longest
  if (has("stall"))
    measure_stalls(10, out);
  if (has("overload"))
    measure_overload(60, out);
  if (has("latency"))
    measure_latencies(seconds, out);
  return out.status();
}
