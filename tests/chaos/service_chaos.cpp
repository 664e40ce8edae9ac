#include "tests/chaos/service_chaos.hpp"

#include "runtime/lab/local_cluster.hpp"
#include "tests/chaos/judge.hpp"
#include "tests/chaos/life_log.hpp"
#include "tests/chaos/members.hpp"
#include "tests/chaos/process_watch.hpp"
#include "tests/chaos/service_clients.hpp"
#include "tests/support/free_port.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <thread>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using milliseconds = std::chrono::milliseconds;

constexpr auto pause_of_turn = 10ms;
constexpr auto round_time = 60s;    // of one job
constexpr auto silence_limit = 90s; // without a token
constexpr milliseconds notice_time = 4s;
constexpr int clients = 6;
constexpr const char* gateway = "gateway";

job_specification served_job(std::uint32_t min_depth) {
  job_specification x;
  x.name = "chaos";
  x.kind = "serve";
  x.seed = 11;
  x.optimizer.kind = "none";
  x.model = {.kind = "gpt", .layers = 4, .width = 64, .heads = 2, .sequence = 256, .vocabulary = 256};
  x.min_depth = min_depth;
  x.serve.cache_bytes = 16 << 20;
  x.serve.batch = 4;
  x.serve.wait_ms = 600'000; // a request is never lost for want of workers
  return x;
}

class service_chaos {
public:
  service_chaos(const options& x, const std::filesystem::path& logs) :
      options_(x), random_(x.seed), cluster_(sibling_program(""), logs), log_(logs), clients_(port_, x.seed) {
    for (int i = 0; i < x.nodes; ++i)
      members_["node-w" + std::to_string(i)];
  }

  bool run() {
    cluster_.start_node(gateway, {"--role", "gateway", "--http", "127.0.0.1:" + std::to_string(port_)});
    for (auto& [name, x] : members_)
      start(name, x);
    submit(1);
    wait_for_service();
    if (const auto problem = problems_.empty() ? clients_.learn() : ""; !problem.empty())
      problems_.push_back(problem);
    const auto end = start_ + milliseconds(static_cast<std::int64_t>(options_.minutes * 60'000));
    next_fault_ = next_away_ = clock::now() + 2s;
    while (problems_.empty() && clock::now() < end) {
      clients_.begin(clients);
      disturb(std::min(clock::now() + round_time, end));
      settle();
      count_generations();
      if (problems_.empty() && clock::now() < end) {
        cancel();
        submit(static_cast<std::uint32_t>(draw(1, 2)));
        until("a gateway that knows the job", [&] { return status_of("/v1/models") == 200; });
      }
    }
    sum_up();
    return problems_.empty();
  }

private:
  void say(const std::string& what) const {
    std::printf("%8.2f %s\n", std::chrono::duration<double>(clock::now() - start_).count(), what.c_str());
    std::fflush(stdout);
  }

  std::uint64_t draw(std::uint64_t least, std::uint64_t most) { return least + random_() % (most - least + 1); }
  milliseconds pause(std::uint64_t least, std::uint64_t most) { return milliseconds(draw(least, most)); }

  void sum_up() {
    say(fmt::format("{} streams, all as before the harm but what is below; longest gap {:.1f} s", clients_.answered(),
                    static_cast<double>(clients_.longest_gap().count()) / 1000));
    for (const auto& [what, count] : counts_)
      say(fmt::format("  {}: {}", what, count));
    say(fmt::format("  {} lives were long enough to see whether they grow", watch_.judged()));
    for (const auto& x : watch_.growing())
      problems_.push_back(x);
    if (options_.minutes >= 4 && watch_.judged(gateway) == 0)
      problems_.push_back("the gateway did not live long enough to see whether it grows");
    for (const auto& x : problems_)
      say("FAILED: " + x);
  }

  // --- the job

  /// False: the manager does not answer.
  bool ask(const std::function<void(manager_client&)>& f) {
    try {
      manager_client client(cluster_.access());
      f(client);
      return true;
    } catch (const client_error&) {
      return false;
    }
  }

  void until(const std::string& what, const std::function<bool()>& holds) {
    const auto limit = clock::now() + silence_limit;
    while (problems_.empty() && !holds()) {
      turn_once();
      if (clock::now() > limit)
        problems_.push_back("waited in vain for " + what);
    }
  }

  void submit(std::uint32_t min_depth) {
    id_ = 0;
    until("a manager that takes a job",
          [&] { return ask([&](manager_client& manager) { id_ = manager.submit(served_job(min_depth)); }); });
    say(fmt::format("job {}: depth {} or more", id_, min_depth));
  }

  /// Of this job, by their changes: numbers of generations have gaps where another manager goes on.
  void count_generations() {
    until("a manager that says how many generations there were", [&] {
      return ask([&](manager_client& manager) {
        counts_["generation"] += parcae::job_of(manager.status({.job = id_}), id_).change_count;
      });
    });
  }

  void cancel() {
    until("a manager that cancels a job", [&] { return ask([&](manager_client& manager) { manager.cancel(id_); }); });
    until("the end of a job", [&] {
      bool ended = false;
      ask([&](manager_client& manager) {
        ended = parcae::job_of(manager.status({.job = id_}), id_).state == "cancelled";
      });
      return ended;
    });
    // Who asks a job that is cancelled is told so: nobody shall before the gateway has heard of it.
    until("the gateway to forget a job", [&] { return status_of("/v1/models") == 503; });
  }

  /// 0: nobody answers.
  unsigned status_of(const std::string& target) {
    try {
      return web_client(port_).ask({"GET", target, {}, {}}).status;
    } catch (const std::exception&) {
      return 0;
    }
  }

  void wait_for_service() {
    until("the service", [&] { return status_of("/health") == 200; });
  }

  // --- processes

  void start(const std::string& name, member& x) {
    log_.begin(name);
    cluster_.start_node(name, {"--grace", "4s"});
    x.begin_life(clock::now());
  }

  void tend(clock::time_point now) {
    watch_.look(gateway, cluster_.node(gateway).pid());
    if (!manager_away_)
      watch_.look("manager", cluster_.manager().pid());
    if (cluster_.node(gateway).poll())
      problems_.push_back("the gateway ended by itself");
    for (auto& [name, x] : members_) {
      if (!x.running) {
        if (now >= x.back_at)
          start(name, x);
        continue;
      }
      watch_.look(name, cluster_.node(name).pid());
      const auto status = cluster_.node(name).poll();
      if (!status)
        continue;
      x.running = false;
      x.back_at = now + pause(100, 5000);
      if (x.done_between(x.started, now).empty() && !(*status == 1 && name_was_taken(log_.text(name))))
        problems_.push_back(fmt::format("{} ended by itself, with status {}", name, *status));
    }
  }

  void turn_once() {
    const auto now = clock::now();
    while (!due_.empty() && due_.begin()->first <= now) {
      const auto action = due_.extract(due_.begin());
      action.mapped()();
    }
    tend(now);
    for (auto& x : clients_.take_problems())
      problems_.push_back(std::move(x));
    std::this_thread::sleep_for(pause_of_turn);
  }

  // --- faults

  void disturb(clock::time_point to) {
    while (problems_.empty() && clock::now() < to) {
      turn_once();
      const auto now = clock::now();
      if (now >= next_fault_) {
        inject();
        next_fault_ = now + (draw(0, 3) == 0 ? pause(20, 200) : pause(500, 5000));
      }
      if (options_.disturb_manager && !manager_away_ && now >= next_away_)
        disturb_manager();
      if (now - clients_.heard() > silence_limit)
        problems_.push_back("no token for long");
      if (now - told_at_ > 30s) {
        told_at_ = now;
        say(fmt::format("{} streams", clients_.answered()));
      }
    }
  }

  /// Who is frozen goes on, and all answers come.
  void settle() {
    std::atomic<bool> done = false;
    std::jthread stops([&] {
      clients_.stop();
      done = true;
    });
    until("the answers under way", [&] { return done.load(); });
    if (!done) // nobody may wait for them
      for (const auto& x : {std::string(gateway)})
        cluster_.node(x).signal(SIGKILL);
  }

  std::vector<std::string> running() const {
    std::vector<std::string> result;
    for (const auto& [name, x] : members_)
      if (x.running && x.done_between(clock::now(), clock::now()).empty())
        result.push_back(name);
    return result;
  }

  void inject() {
    auto names = running();
    std::shuffle(names.begin(), names.end(), random_);
    const auto some = [&](std::size_t count) {
      return std::vector(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(count, names.size())));
    };
    const auto what = draw(0, 99);
    if (what < 10)
      freeze({gateway});
    else if (names.empty())
      return;
    else if (what < 35)
      kill(some(1), "kill of one");
    else if (what < 50)
      kill(some(2), "kill of two");
    else if (what < 56)
      kill(names, "kill of all workers");
    else if (what < 75)
      freeze(some(draw(1, 2)));
    else
      announce(some(draw(1, 2)));
  }

  void note(const std::string& name, const std::string& what, clock::time_point from = clock::now()) {
    if (const auto x = members_.find(name); x != members_.end())
      x->second.note({from, clock::time_point::max(), what});
  }

  void kill(const std::vector<std::string>& names, const std::string& what) {
    say(fmt::format("{}: {}", what, fmt::join(names, " ")));
    ++counts_[what];
    for (const auto& name : names) {
      note(name, "killed");
      cluster_.node(name).signal(SIGKILL);
    }
  }

  void freeze(const std::vector<std::string>& names) {
    if (names.front() == gateway && std::exchange(gateway_frozen_, true))
      return;
    const auto time = pause(300, 8000);
    say(fmt::format("freeze of {:.1f} s: {}", static_cast<double>(time.count()) / 1000, fmt::join(names, " ")));
    ++counts_[names.front() == gateway ? "freeze of the gateway" : "freeze"];
    for (const auto& name : names) {
      const auto began = clock::now();
      note(name, "frozen", began);
      cluster_.node(name).signal(SIGSTOP);
      due_.emplace(began + time, [this, name, began] {
        cluster_.node(name).signal(SIGCONT);
        if (const auto x = members_.find(name); x != members_.end())
          x->second.end_freeze(began, clock::now());
        else
          gateway_frozen_ = false;
      });
    }
  }

  void announce(const std::vector<std::string>& names) {
    say(fmt::format("notice: {}", fmt::join(names, " ")));
    ++counts_["notice"];
    for (const auto& name : names) {
      note(name, "under notice");
      cluster_.node(name).signal(SIGTERM);
      due_.emplace(clock::now() + notice_time, [this, name, pid = cluster_.node(name).pid()] {
        if (cluster_.node(name).pid() == pid)
          cluster_.node(name).signal(SIGKILL);
      });
    }
  }

  void disturb_manager() {
    const bool kills = draw(0, 1) == 0;
    const auto time = kills ? pause(100, 5'000) : pause(1'000, 10'000);
    const std::string what = kills ? "kill of the manager" : "freeze of the manager";
    say(fmt::format("{}, for {:.1f} s", what, static_cast<double>(time.count()) / 1000));
    ++counts_[what];
    cluster_.manager().signal(kills ? SIGKILL : SIGSTOP);
    if (kills)
      cluster_.manager().wait(5s);
    manager_away_ = true;
    next_away_ = clock::now() + time + 30s;
    due_.emplace(clock::now() + time, [this, kills] {
      if (kills)
        cluster_.restart_manager();
      else
        cluster_.manager().signal(SIGCONT);
      manager_away_ = false;
      say("the manager goes on");
    });
  }

  const options options_;
  std::mt19937_64 random_;
  const std::uint16_t port_ = free_port();
  member_map members_;
  local_cluster cluster_;
  life_log log_;
  service_clients clients_;
  std::multimap<clock::time_point, std::function<void()>> due_;
  const clock::time_point start_ = clock::now();
  clock::time_point next_fault_, next_away_, told_at_ = start_;
  bool manager_away_ = false, gateway_frozen_ = false;
  std::uint64_t id_ = 0;
  std::vector<std::string> problems_;
  process_watch watch_;
  std::map<std::string, std::uint64_t> counts_;
};

} // namespace

bool serves_through_faults(const options& x, const std::filesystem::path& logs) {
  return service_chaos(x, logs).run();
}

} // namespace parcae
