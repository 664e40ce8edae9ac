#include "tests/chaos/chaos.hpp"

#include "runtime/lab/local_cluster.hpp"
#include "tests/chaos/change_watch.hpp"
#include "tests/chaos/chaos_job.hpp"
#include "tests/chaos/ground.hpp"
#include "tests/chaos/judge.hpp"
#include "tests/chaos/life_log.hpp"
#include "tests/chaos/process_watch.hpp"
#include "tests/chaos/tally.hpp"
#include "tests/support/small_disk.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <random>
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
constexpr milliseconds notice = 4s;
/// It may be frozen or cut off meanwhile. A manager that is killed forgets a notice by command, and nobody leaves.
constexpr milliseconds notice_by_command = notice + 20s;
constexpr int quiet_part_minutes = 10; // one of each so many

class chaos {
public:
  chaos(const options& x, const std::filesystem::path& logs, std::string expected) :
      options_(x), expected_(std::move(expected)), random_(x.seed), logs_(logs),
      members_(members_of(x.nodes, x.device == "cpu" ? 2 : 1)), ground_(members_, logs),
      cluster_(sibling_program(""), logs,
               ground_.of_cluster([this](const std::string& name) { return state_folder(name); })) {
    for (const auto& [name, member] : members_)
      if (member.keeper && disks_.try_emplace(name, state_folder(name)).first->second.problem().size() > 0)
        disks_.erase(name);
  }

  /// Whether all went well.
  bool run() {
    if (disks_.empty())
      say("no disk is ever full: none can be mounted");
    if (!ground_.no_links().empty())
      say("no link is ever cut or slow: " + ground_.no_links());
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
        changes_.count_harm(counts_, now);
        inject();
        next_fault_ = now + (draw(0, 3) == 0 ? pause(20, 200) : pause(500, 7000));
      }
      if (options_.disturb_manager && !over_ && !manager_away_ && now >= next_away_)
        disturb_manager();
      if (!manager_away_ && now >= next_look_)
        look();
      std::this_thread::sleep_for(turn);
    }
    sum_up();
    return problems_.empty();
  }

private:
  void say(const std::string& what) const {
    std::printf("%8.2f %s\n", std::chrono::duration<double>(clock::now() - start_).count(), what.c_str());
    std::fflush(stdout);
  }

  void fail(const std::string& why) { problems_.push_back(why); }

  std::filesystem::path state_folder(const std::string& name) const {
    if (name == "manager")
      return logs_ / name;
    return members_.at(name).keeper ? logs_ / "state" / name : std::filesystem::path();
  }

  void sum_up() {
    const auto& sums = judge_.sums();
    say(fmt::format("{} jobs, {} changes, {} steps computed again, {} of them committed; {} losses of steps", jobs_,
                    sums.changes, sums.replayed, sums.lost, sums.losses));
    counts_["change"] = sums.changes;
    for (const auto& x : counts_.lines())
      say(x);
    say(fmt::format("  {} lives were long enough to see whether they grow", watch_.judged()));
    for (const auto& x : watch_.growing())
      fail(x);
    if (options_.disturb_manager && options_.minutes >= quiet_part_minutes && watch_.judged("manager") == 0)
      fail("no manager lived long enough to see whether it grows");
    for (const auto& x : counts_.too_few(options_.minutes, ground_.no_links().empty()))
      fail(x);
    for (const auto& x : problems_)
      say("FAILED: " + x);
  }

  std::uint64_t draw(std::uint64_t least, std::uint64_t most) { return least + random_() % (most - least + 1); }
  milliseconds pause(std::uint64_t least, std::uint64_t most) { return milliseconds(draw(least, most)); }

  // --- processes

  void start(const std::string& name, member& x) {
    log_.begin(name);
    if (x.keeper)
      cluster_.start_node(name, {"--role", "keeper", "--grace", "4s", "--state", state_folder(name).string()});
    else
      cluster_.start_node(name, {"--device", options_.device, "--slots", std::to_string(x.slots), "--grace", "4s"});
    x.begin_life(clock::now());
  }

  /// Starts what is to come back, and sees what ended.
  void tend(clock::time_point now) {
    if (!manager_away_)
      watch_.look("manager", cluster_.manager().pid());
    for (auto& [name, x] : members_) {
      if (!x.running) {
        if (now >= x.back_at)
          start(name, x);
        continue;
      }
      watch_.look(name, cluster_.node(name).pid(), models_of(job_, name));
      if (const auto* open = x.endless(now))
        fail(fmt::format("{} lives, is held to be {}, and so nothing is done to it any more", name, open->what));
      const auto status = cluster_.node(name).poll();
      if (!status)
        continue;
      x.running = false;
      x.back_at = now + pause(100, 5000);
      if (!x.done_between(x.started, now).empty())
        continue;
      if (*status == 1 && name_was_taken(log_.text(name)))
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
    members_.at(name).note({clock::now(), to, what});
  }

  void kill(const std::vector<std::string>& names, const std::string& what) {
    say(fmt::format("{}: {}", what, fmt::join(names, " ")));
    ++counts_[what];
    if (names.size() > 1)
      ++counts_["two or more losses at once"];
    for (const auto& name : names) {
      counts_["loss of a keeper"] += members_.at(name).keeper;
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
    const bool announces = options_.feed && !std::exchange(hurries_, false) && draw(0, 3) > 0;
    const auto what = announces ? 99 : draw(0, 99);
    if (what < 12) {
      kill_keeper();
    } else if (what < 15) {
      fill_disk();
    } else if (what < 18) {
      slow_disk();
    } else if (what < 22) {
      slow_link();
    } else if (what < 24) {
      cut(running(true));
    } else if (names.empty()) {
      return;
    } else if (what < 34) {
      cut(some(draw(1, 2)));
    } else if (what < 50) {
      kill(some(1), "kill of one");
    } else if (what < 62) {
      kill(some(2), "kill of two");
    } else if (what < 66) {
      kill(names, "kill of all workers");
    } else if (what < 82) {
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
      const auto began = clock::now();
      members_.at(name).note({began, clock::time_point::max(), "frozen"});
      cluster_.node(name).signal(SIGSTOP);
      due_.emplace(began + time, [this, name, began] { thaw(name, began); });
    }
  }

  /// Later than was meant if the manager took its time to answer: what counts is how long it really stood still.
  void thaw(const std::string& name, clock::time_point began) {
    cluster_.node(name).signal(SIGCONT);
    members_.at(name).end_freeze(began, clock::now());
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
          done_to(name, "under notice", clock::now() + notice_by_command);
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

  /// What passes, and is no reason to lose anything.
  void for_a_while(const char* what, const std::string& whom, const std::function<void()>& begin,
                   std::function<void()> end) {
    const auto time = pause(1000, 10'000);
    say(fmt::format("{} for {:.1f} s: {}", what, static_cast<double>(time.count()) / 1000, whom));
    ++counts_[what];
    begin();
    due_.emplace(clock::now() + time, std::move(end));
  }

  std::string one_of(std::vector<std::string> names) {
    names.push_back("manager");
    return names[draw(0, names.size() - 1)];
  }

  /// Of a keeper, which writes checkpoints there.
  void fill_disk() {
    if (disks_.empty())
      return;
    const auto x = std::next(disks_.begin(), static_cast<std::ptrdiff_t>(draw(0, disks_.size() - 1)));
    for_a_while(
        "full disk", x->first, [&] { x->second.fill(); }, [disk = &x->second] { disk->make_room(); });
  }

  /// Of a keeper, or of the manager: its journal.
  void slow_disk() {
    const auto whom = one_of(running(true));
    const auto folder = state_folder(whom);
    for_a_while(
        "slow disk", whom, [&] { ground::slow_disk(folder, true); }, [folder] { ground::slow_disk(folder, false); });
  }

  void slow_link() {
    if (!ground_.no_links().empty())
      return;
    const auto whom = one_of(names_of(members_));
    for_a_while(
        "slow link", whom, [&] { ground_.slow_link(whom, slow_mbit(options_)); },
        [this, whom] { ground_.usual_link(whom); });
  }

  void cut(const std::vector<std::string>& names) {
    if (!ground_.no_links().empty() || names.empty())
      return;
    const auto time = pause(300, 8000);
    say(fmt::format("cut of {:.1f} s: {}", static_cast<double>(time.count()) / 1000, fmt::join(names, " ")));
    ++counts_["cut"];
    for (const auto& name : names) {
      done_to(name, "cut off", clock::now() + time + 2s); // until it was heard again
      ground_.cut(name);
      due_.emplace(clock::now() + time, [this, name] { ground_.heal(name); });
    }
  }

  /// Of ten minutes it is not killed in the last four: it lives long enough to see whether it grows.
  bool manager_may_die() const {
    const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(clock::now() - start_).count();
    return minutes % quiet_part_minutes < 6;
  }

  void disturb_manager() {
    const auto what = draw(0, 7);
    if (what < 3 && manager_may_die())
      kill_manager();
    else if (what == 3 && ground_.no_links().empty())
      cut_manager();
    else
      freeze_manager();
  }

  /// It takes all for lost, and they train on.
  void cut_manager() {
    const auto time = pause(1000, 10'000);
    for (const auto& [name, x] : members_)
      done_to(name, "cut off from the manager", clock::now() + time + 2s);
    ground_.cut("manager");
    manager_is_away("cut of the manager", time, [this] { ground_.heal("manager"); });
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
    due_.emplace(clock::now() + time, [this, come_back, from = clock::now()] {
      come_back();
      judge_.manager_is_away(from, clock::now());
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
        client_ = std::make_unique<manager_client>(cluster_.access());
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
    const auto job = drawn_job(options_, random_);
    id_ = 0;
    ask([&](manager_client& manager) { id_ = manager.submit(job); });
    job_ = {};
    judge_.begin();
    heard_ = {.job = id_,
              .events_from = UINT64_MAX,
              .decisions_from = UINT64_MAX,
              .losses_from = UINT64_MAX,
              .news_from = UINT64_MAX};
    last_step_ = 0;
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
    job_ = parcae::job_of(*answer, id_);
    judge_.look(*answer, job_);
    for (const auto& x : judge_.take_news())
      say(x);
    for (const auto& x : judge_.take_faults())
      fail(x);
    if (!job_.changes.empty())
      heard_.changes_from = job_.changes.back().number + 1;
    if (now - told_at_ > tell_interval) {
      told_at_ = now;
      say(fmt::format("step {}/{}, {} {}×{}, generation {}", job_.steps_done, job_.steps, job_.phase, job_.width,
                      job_.depth, job_.generation));
    }
    hurry(now);
    if (job_.steps_done != last_step_) {
      last_step_ = job_.steps_done;
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

  /// With feeds most changes are planned, and of these all that warm and half of the others are harmed at once.
  void hurry(clock::time_point now) {
    const bool is_meant = changes_.begins_to_warm(job_.phase) || (changes_.has_begun(job_.phase) && draw(0, 1) == 0);
    changes_.look(job_.phase, now);
    if (!options_.feed || over_ || !is_meant)
      return;
    hurries_ = true;
    next_fault_ = std::min(next_fault_, now + pause(0, 100));
  }

  const options options_;
  const std::string expected_; ///< digest of the parameters
  std::mt19937_64 random_;
  const std::filesystem::path logs_;
  member_map members_;
  ground ground_;
  local_cluster cluster_;
  std::unique_ptr<manager_client> client_;
  int unanswered_ = 0;
  std::map<std::string, small_disk> disks_; ///< of keepers; none where that is not permitted
  life_log log_{logs_};
  std::multimap<clock::time_point, std::function<void()>> due_;
  const clock::time_point start_ = clock::now();
  clock::time_point next_fault_, next_away_, next_look_;
  bool hurries_ = false; ///< the next fault is meant for a change under way
  bool manager_away_ = false;
  bool over_ = false; ///< no more faults; the job's end is waited for

  std::uint64_t id_ = 0; ///< 0: not submitted yet
  job_status job_;
  change_watch changes_;
  status_request heard_;
  std::uint64_t last_step_ = 0;
  clock::time_point progress_at_, told_at_;

  std::vector<std::string> problems_;
  judge judge_{members_, start_};
  process_watch watch_;
  tally counts_;
  std::uint64_t jobs_ = 0;
};

} // namespace

bool trains_through_faults(const options& x, const std::filesystem::path& logs, const std::string& expected) {
  return chaos(x, logs, expected).run();
}

} // namespace parcae
