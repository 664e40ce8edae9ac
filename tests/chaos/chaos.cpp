// Trains job after job on a cluster of real processes while a random generator kills, freezes and announces the end of
// them, the manager among them, and fails if
// * the parameters of a job differ from those of an undisturbed run, or a job fails, or nothing goes on for long;
// * committed steps were computed again though each stage had a holder that nothing had been done to;
// * an instance was declared lost that nothing had been done to, as a manager does that was itself away;
// * a program ended by itself.
// What happens is drawn from the seed; when it happens to the job is a matter of real time.

#include "runtime/lab/local_cluster.hpp"
#include "tests/chaos/chaos_job.hpp"

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <thread>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using milliseconds = std::chrono::milliseconds;

constexpr auto turn = 10ms;          // of the loop
constexpr auto look_interval = 50ms; // between two looks at the status
constexpr auto tell_interval = 30s;
constexpr auto standstill_limit = 120s; // without a step
constexpr auto deadly_freeze = 1000ms;  // a process that stood still for longer may be taken for lost
constexpr auto memory = 20s;            // after so long what was done to a process excuses nothing any more
constexpr milliseconds notice = 4s;

/// Something done to a process that may well cost what it holds.
struct deed {
  clock::time_point from;
  clock::time_point to; ///< from here on it, or the one started in its place, is as good as any; max(): not yet
  std::string what;
};

struct member {
  bool keeper = false;
  std::uint32_t slots = 1;
  bool running = false;
  clock::time_point started;
  clock::time_point back_at; ///< when to start it again
  std::deque<deed> deeds;    ///< of all its lives

  /// What was last done to it in a span of time; empty: nothing.
  std::string done_between(clock::time_point from, clock::time_point to) const {
    for (auto x = deeds.rbegin(); x != deeds.rend(); ++x)
      if (x->from <= to && x->to >= from)
        return x->what;
    return {};
  }
};

clock::time_point moment(std::int64_t microseconds) {
  return clock::time_point(std::chrono::microseconds(microseconds));
}

std::string instance_of(const std::string& slot) {
  return slot.substr(0, slot.find('/'));
}

class chaos {
public:
  chaos(const options& x, const std::filesystem::path& logs, std::string expected) :
      options_(x), expected_(std::move(expected)), random_(x.seed), cluster_(sibling_program(""), logs) {
    for (int i = 0; i < x.nodes; ++i)
      members_[fmt::format("w{}", i)].slots = i % 3 == 2 ? 2 : 1;
    for (int i = 0; i < 2; ++i)
      members_[fmt::format("k{}", i)].keeper = true;
  }

  /// Whether all went well.
  bool run() {
    start_ = clock::now();
    const auto end = start_ + milliseconds(static_cast<std::int64_t>(options_.minutes * 60'000));
    next_fault_ = start_ + 5s;
    next_away_ = start_ + 20s;
    submit();
    while (problems_.empty() && (job_.state != "done" || clock::now() < end)) {
      const auto now = clock::now();
      over_ = now >= end;
      while (!due_.empty() && due_.begin()->first <= now) {
        const auto action = due_.extract(due_.begin());
        action.mapped()();
      }
      tend(now);
      if (!over_ && now >= next_fault_) {
        inject();
        next_fault_ = now + pause(500, 7000);
      }
      if (options_.disturb_manager && !over_ && !manager_away_ && now >= next_away_)
        draw(0, 1) == 0 ? freeze_manager() : kill_manager();
      if (!manager_away_ && now >= next_look_)
        look();
      std::this_thread::sleep_for(turn);
    }
    say(fmt::format("{} jobs, {} changes, {} steps computed again, {} of them committed; {} losses of steps", jobs_,
                    changes_, replayed_, lost_, losses_));
    for (const auto& [what, count] : counts_)
      say(fmt::format("  {:4} × {}", count, what));
    for (const auto& x : problems_)
      say("FAILED: " + x);
    return problems_.empty();
  }

private:
  void say(const std::string& what) const {
    std::printf("%8.2f %s\n", std::chrono::duration<double>(clock::now() - start_).count(), what.c_str());
    std::fflush(stdout);
  }

  void fail(const std::string& why) { problems_.push_back(why); }

  std::uint64_t draw(std::uint64_t least, std::uint64_t most) { return least + random_() % (most - least + 1); }
  milliseconds pause(std::uint64_t least, std::uint64_t most) { return milliseconds(draw(least, most)); }

  // --- processes

  void start(const std::string& name, member& x) {
    if (x.keeper)
      cluster_.start_node(name,
                          {"--role", "keeper", "--grace", "4s", "--state", (cluster_.state_folder() / name).string()});
    else
      cluster_.start_node(name, {"--slots", std::to_string(x.slots), "--grace", "4s"});
    x.running = true;
    x.started = clock::now();
    for (auto& y : x.deeds)
      y.to = std::min(y.to, x.started);
  }

  /// Starts what is to come back, and sees what ended.
  void tend(clock::time_point now) {
    for (auto& [name, x] : members_) {
      if (!x.running) {
        if (now >= x.back_at)
          start(name, x);
        continue;
      }
      const auto status = cluster_.node(name).poll();
      if (!status)
        continue;
      x.running = false;
      x.back_at = now + pause(100, 5000);
      if (!x.done_between(x.started, now).empty())
        continue;
      // The life before it may not have been missed yet; then the name is still taken.
      if (*status == 1 && now - x.started < 30s)
        ++counts_["refusal, its name was taken"];
      else
        fail(fmt::format("{} ended by itself, with status {}", name, *status));
    }
  }

  std::vector<std::string> running(bool keepers) const {
    std::vector<std::string> result;
    for (const auto& [name, x] : members_)
      if (x.running && x.keeper == keepers && x.done_between(clock::now(), clock::now()).empty())
        result.push_back(name);
    return result;
  }

  void done_to(const std::string& name, const std::string& what, clock::time_point to = clock::time_point::max()) {
    auto& deeds = members_.at(name).deeds;
    deeds.push_back({clock::now(), to, what});
    if (deeds.size() > 50)
      deeds.pop_front();
  }

  void kill(const std::vector<std::string>& names, const std::string& what) {
    say(fmt::format("{}: {}", what, fmt::join(names, " ")));
    ++counts_[what];
    for (const auto& name : names) {
      done_to(name, "killed");
      cluster_.node(name).signal(SIGKILL);
    }
  }

  // --- faults

  void inject() {
    auto names = running(false);
    std::shuffle(names.begin(), names.end(), random_);
    const auto some = [&](std::size_t count) {
      return std::vector(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(count, names.size())));
    };
    const auto what = draw(0, 99);
    if (what < 15) {
      kill_keeper();
    } else if (names.empty()) {
      return;
    } else if (what < 40) {
      kill(some(1), "kill of one");
    } else if (what < 55) {
      kill(some(2), "kill of two");
    } else if (what < 60) {
      kill(names, "kill of all workers");
    } else if (what < 80) {
      freeze(some(draw(1, 2)));
    } else {
      announce(some(draw(1, 2)));
    }
  }

  void freeze(const std::vector<std::string>& names) {
    const auto time = pause(300, 8000);
    say(fmt::format("freeze of {:.1f} s: {}", static_cast<double>(time.count()) / 1000, fmt::join(names, " ")));
    ++counts_["freeze"];
    for (const auto& name : names) {
      if (time >= deadly_freeze)
        done_to(name, "frozen", clock::now() + time + 2s); // until it was heard again
      cluster_.node(name).signal(SIGSTOP);
      due_.emplace(clock::now() + time, [this, name] { cluster_.node(name).signal(SIGCONT); });
    }
  }

  void announce(const std::vector<std::string>& names) {
    const bool by_signal = manager_away_ || draw(0, 1) == 0;
    say(fmt::format("notice by {}: {}", by_signal ? "signal" : "command", fmt::join(names, " ")));
    ++counts_["notice"];
    for (const auto& name : names)
      if (by_signal) {
        done_to(name, "under notice");
        cluster_.node(name).signal(SIGTERM);
        // As the cloud does when the time is over.
        due_.emplace(clock::now() + notice, [this, name, pid = cluster_.node(name).pid()] {
          if (cluster_.node(name).pid() == pid)
            cluster_.node(name).signal(SIGKILL);
        });
      } else {
        ask([&](manager_client& manager) {
          manager.preempt({.names = {name}, .notice_ms = static_cast<std::uint64_t>(notice.count())});
          done_to(name, "under notice");
        });
      }
  }

  /// Both only if what is lost with them is on disk.
  void kill_keeper() {
    auto names = running(true);
    if (names.size() == 2 && !(job_.checkpoint_steps > 0 && draw(0, 3) == 0))
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(draw(0, 1)));
    else if (names.size() == 1 && job_.checkpoint_steps == 0)
      return;
    if (!names.empty())
      kill(names, names.size() == 2 ? "kill of both keepers" : "kill of a keeper");
  }

  void freeze_manager() {
    cluster_.manager().signal(SIGSTOP);
    manager_is_away("freeze of the manager", pause(1000, 10'000), [this] { cluster_.manager().signal(SIGCONT); });
  }

  void kill_manager() {
    cluster_.manager().signal(SIGKILL);
    cluster_.manager().wait(5s);
    manager_is_away("kill of the manager", pause(100, 5'000), [this] {
      cluster_.restart_manager();
      client_.reset();
      heard_.changes_from = 0; // it counts anew
    });
  }

  /// Nothing is asked of it until it has been back for a second.
  void manager_is_away(const std::string& why, milliseconds time, const std::function<void()>& come_back) {
    say(fmt::format("{}, for {:.1f} s", why, static_cast<double>(time.count()) / 1000));
    ++counts_[why];
    next_away_ = clock::now() + time + 40s;
    manager_away_ = true;
    due_.emplace(clock::now() + time, [this, come_back] {
      come_back();
      manager_away_ = false;
      next_look_ = clock::now() + 1s;
      say("the manager goes on");
    });
  }

  /// A connection may not outlive a freeze of the manager.
  template <class Function>
  void ask(Function&& f) {
    try {
      if (!client_)
        client_ = std::make_unique<manager_client>(cluster_.where());
      f(*client_);
      unanswered_ = 0;
    } catch (const client_error& e) {
      client_.reset();
      if (const auto status = cluster_.manager().poll())
        fail(fmt::format("the manager ended with status {}", *status));
      else if (++unanswered_ > 10)
        fail(std::string("the manager does not answer: ") + e.what());
    }
  }

  void submit() {
    auto job = chaos_job(options_);
    job.min_depth = static_cast<std::uint32_t>(draw(1, 2));
    job.max_depth = static_cast<std::uint32_t>(draw(2, 4));
    job.keeper_copies = static_cast<std::uint32_t>(draw(1, 2));
    job.policy = draw(0, 1) == 0 ? "liveput" : "throughput";
    id_ = 0;
    ask([&](manager_client& manager) { id_ = manager.submit(job); });
    job_ = {};
    grids_.clear();
    heard_ = {.job = id_,
              .events_from = UINT64_MAX,
              .decisions_from = UINT64_MAX,
              .losses_from = UINT64_MAX,
              .news_from = UINT64_MAX};
    protected_.clear();
    best_step_ = 0;
    progress_at_ = clock::now();
    ++jobs_;
    say(fmt::format("job {}: depth {} to {}, each layer on {} keepers, {}", id_, job.min_depth, job.max_depth,
                    job.keeper_copies, job.policy));
  }

  void look() {
    next_look_ = clock::now() + look_interval;
    if (id_ == 0)
      return submit();
    std::optional<status_reply> answer;
    ask([&](manager_client& manager) { answer = manager.status(heard_); });
    if (!answer)
      return;
    const auto now = clock::now();
    for (const auto& x : answer->instances)
      check_loss(x);
    job_ = parcae::job_of(*answer, id_);
    if (!job_.grid.empty())
      grids_[job_.generation] = {job_.width, job_.depth, job_.grid};
    for (const auto& x : job_.changes) {
      check_change(x);
      heard_.changes_from = x.number + 1;
    }
    if (now - told_at_ > tell_interval) {
      told_at_ = now;
      say(fmt::format("step {}/{}, {} {}×{}, generation {}", job_.steps_done, job_.steps, job_.phase, job_.width,
                      job_.depth, job_.generation));
    }
    protected_.emplace_back(now, job_.protected_steps);
    if (protected_.size() > 2000)
      protected_.pop_front();
    if (job_.steps_done > best_step_) {
      best_step_ = job_.steps_done;
      progress_at_ = now;
    }
    if (job_.state == "failed" || job_.state == "cancelled")
      fail("the job " + job_.state + ": " + job_.problem);
    if (now - progress_at_ > standstill_limit)
      fail("no new step for long, in phase " + job_.phase + ": " + job_.problem);
    if (job_.state != "done")
      return;
    say(fmt::format("job {} is done: {} changes, {} steps replayed, sha256 {}", id_, job_.change_count,
                    job_.replayed_steps, job_.parameters_sha256));
    if (job_.parameters_sha256 != expected_)
      fail("the parameters differ: expected " + expected_);
    if (!over_)
      submit();
  }

  /// A living instance must not be given up.
  void check_loss(const instance_status& x) {
    if (x.lost_at_us < 0 || !lost_lives_.insert({x.name, x.incarnation}).second)
      return;
    const auto at = moment(x.lost_at_us);
    if (members_.at(x.name).done_between(at - memory, at).empty()) {
      ++counts_["loss without a cause"];
      fail(fmt::format("{} was declared lost, {:.2f} s after the start, though nothing had been done to it", x.name,
                       std::chrono::duration<double>(at - start_).count()));
    }
  }

  /// Committed steps may be lost only with all who held a stage.
  void check_change(const change_status& x) {
    ++changes_;
    replayed_ += x.replayed_steps;
    const std::uint64_t dropped = x.decided_ms >= 0 ? 1 : 0; // the one in progress when the generation was aborted
    if (x.replayed_steps <= dropped)
      return;
    const auto lost = x.replayed_steps - dropped;
    lost_ += lost;
    ++losses_;
    const auto ended = std::ranges::find_if(job_.chain.rbegin(), job_.chain.rend(),
                                            [&](const auto& link) { return link.by.value < x.to; });
    const auto before = ended == job_.chain.rend() ? grids_.end() : grids_.find(ended->by.value);
    auto text = fmt::format("{} committed steps lost, change to generation {} after {}", lost, x.to, x.trigger);
    if (before == grids_.end())
      return say(text + "; the grid before was too short-lived to be seen");
    const auto at = moment(x.at_us);
    std::string cause;
    for (std::uint32_t stage = 0; stage < before->second.depth && cause.empty(); ++stage) {
      std::string all;
      for (std::uint32_t d = 0; d < before->second.width; ++d) {
        const auto holder = instance_of(before->second.slots.at(d * before->second.depth + stage));
        const auto done = members_.at(holder).done_between(at - memory, clock::now());
        if (done.empty()) {
          all.clear();
          break;
        }
        all += fmt::format(" {} ({})", holder, done);
      }
      if (!all.empty())
        cause = fmt::format("; stage {} lost all its holders:{}", stage, all);
    }
    say(text + cause);
    if (cause.empty())
      fail(text + ", though every stage had a holder that nothing had been done to");
    check_depth(x, text);
  }

  /// What the keepers had is not lost with others.
  void check_depth(const change_status& x, const std::string& text) {
    const auto began = std::ranges::find(job_.chain, generation{x.to}, &chain_link::by);
    const auto at = moment(x.at_us);
    for (const auto& [name, y] : members_)
      if (y.keeper && !y.done_between(at - memory, clock::now()).empty())
        return;
    for (const auto& [when, steps] : protected_)
      if (when < at && began != job_.chain.end() && steps > began->base)
        return fail(fmt::format("{}, down to version {}, though the keepers had version {}", text, began->base, steps));
  }

  struct grid {
    std::uint32_t width;
    std::uint32_t depth;
    std::vector<std::string> slots; ///< by rank
  };

  const options options_;
  const std::string expected_; ///< digest of the parameters
  std::mt19937_64 random_;
  local_cluster cluster_;
  std::unique_ptr<manager_client> client_;
  int unanswered_ = 0;
  std::map<std::string, member> members_;
  std::multimap<clock::time_point, std::function<void()>> due_;
  clock::time_point start_, next_fault_, next_away_, next_look_;
  bool manager_away_ = false;
  bool over_ = false; ///< no more faults; the job's end is waited for

  std::uint64_t id_ = 0; ///< 0: not submitted yet
  job_status job_;
  status_request heard_;
  std::map<std::uint64_t, grid> grids_; ///< by generation, as far as seen
  std::set<std::pair<std::string, incarnation>> lost_lives_;
  std::deque<std::pair<clock::time_point, std::uint64_t>> protected_; ///< version that the keepers had, when
  std::uint64_t best_step_ = 0;
  clock::time_point progress_at_, told_at_;

  std::vector<std::string> problems_;
  std::map<std::string, std::uint64_t> counts_;
  std::uint64_t jobs_ = 0, changes_ = 0, replayed_ = 0, lost_ = 0, losses_ = 0;
};

int run(const options& x) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(x.seed));
  std::fflush(stdout);
  scratch_folder logs("parcae-chaos");
  std::filesystem::create_directory(logs.path() / "undisturbed");
  std::filesystem::create_directory(logs.path() / "disturbed");
  bool good = false;
  std::string why;
  try {
    const auto expected = undisturbed(x, logs.path() / "undisturbed");
    good = !expected.empty() && chaos(x, logs.path() / "disturbed", expected).run();
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (!good) {
    logs.keep();
    std::printf("failed with seed %llu%s%s; logs are in %s\n", static_cast<unsigned long long>(x.seed),
                why.empty() ? "" : ": ", why.c_str(), logs.path().c_str());
  }
  return good ? 0 : 1;
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  CLI::App app{"Trains through random faults and compares with undisturbed training.", "chaos"};
  parcae::options x;
  app.add_option("--minutes", x.minutes, "how long there are faults")->capture_default_str();
  app.add_option("--seed", x.seed, "default: a random one");
  app.add_option("--steps", x.steps, "of each job")->capture_default_str();
  app.add_option("--nodes", x.nodes, "workers; each third has two slots")->capture_default_str();
  app.add_flag("!--spare-manager", x.disturb_manager, "leave the manager alone");
  CLI11_PARSE(app, argc, argv);
  return parcae::run(x);
}
