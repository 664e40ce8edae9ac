// What the manager's processor does for a large job: the conductor alone, driven without CAF, in front of executors
// that do at once what their rules say. Prints figures, by fleet size, of this thread's processor, which is all there
// is to measure:
//   loss       from a loss to its PREPAREs: all answers to ABORT and DECIDE, the planner's decision, placement and
//              transfer plan
//   progress   one report of a rank with what the host does after it, and its share of a core at the rate of reports
//   plan       plan_change alone, by what happened
// Fails if one is beyond its bound. Options: --quick leaves out the smaller fleets.

#include "actors/conductor/conductor.hpp"
#include "planner/choose/live_plan.hpp"
#include "planner/situation/placement.hpp"
#include "tests/actors/conductor/carried_executors.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>

using namespace parcae;

namespace {

using namespace std::chrono_literals;

constexpr double loss_limit_ms = 50;   // p99
constexpr double progress_limit = 0.2; // of a core
constexpr std::uint32_t layers = 50;   // 25 stages of two
constexpr std::uint32_t depth = 25;
constexpr std::uint64_t layer_bytes = 600'000'000;

job_specification large_job() {
  job_specification job;
  job.steps = 1'000'000'000;
  job.global_batch = 2'048;
  job.micro_batch = 1;
  job.virtual_replicas = 64;
  job.min_depth = 16;
  job.max_depth = 32;
  return job;
}

model_facts large_model() {
  model_facts x;
  x.state_bytes.assign(layers, layer_bytes);
  layer_cost cost{{10, 20, 1}, layer_bytes / 3, 4'000'000, layer_bytes, 40'000'000};
  x.costs.assign(layers, cost);
  return x;
}

/// The conductor and what answers it. All time that passes in the conductor, and in the planner, is counted.
class large_cluster {
public:
  explicit large_cluster(std::uint32_t slots) :
      job_(large_job()), facts_(large_model()),
      conductor_(conductor::make({job_id{1}, job_, facts_, {}, secret_key{{1}}, {}, {}})), news_("auto", 60) {
    all_.report_to = [this](const slot_id& from, report what) {
      if (std::holds_alternative<progress>(what))
        now_ += 5ms;
      handle(slot_reported{from, std::move(what)});
    };
    all_.on_progress = describe;
    all_.object = [](const std::string& what) { throw std::runtime_error(what); };
    handle(slot_joined{{{"keeper", {1'000'000}, 0}, "10.123.123.123", 40'000}, true}); // the others learn of it
    for (std::uint32_t i = 0; i < slots; ++i)
      join();
    run_until(phase::running);
    step();
  }

  void join() {
    const auto number = ++joined_;
    const participant where{{"i-0123456789abcdef" + std::to_string(number), {number}, 0}, "10.123.123.123", 40'000};
    news_.note({seconds(), where.slot.instance, 1, true, false});
    all_.add(where.slot, false);
    handle(slot_joined{where});
  }

  /// Of a slot that has a place. Returns what it took until all PREPAREs were out, ms.
  double lose(std::size_t which) {
    advance(30s);
    const auto grid = *conductor_->view().grid;
    const auto slot = grid.participants.at(which % grid.ranks()).slot;
    all_.lose(slot, false);
    news_.note({seconds(), slot.instance, 1, false, false});
    spent_ms_ = 0;
    handle(slot_lost{slot, "bench"});
    while (conductor_->where().now != phase::preparing)
      one_effect();
    return spent_ms_;
  }

  void run_until(phase wanted) {
    for (int i = 0; conductor_->where().now != wanted || !todo_.empty(); ++i) {
      if (i > 10'000'000)
        throw std::runtime_error("the conductor does not get there");
      if (todo_.empty())
        advance(20ms);
      else
        one_effect();
    }
  }

  /// A commit, told by all ranks. Returns what a report took, ms.
  double step() {
    spent_ms_ = 0;
    all_.step(1.0);
    return spent_ms_ / conductor_->view().grid->ranks();
  }

  const conductor& machine() const { return *conductor_; }

private:
  static void describe(progress& x, std::uint32_t first, std::uint32_t last) {
    x.step_ms = 500;
    x.other_ms = 1;
    x.peak_bytes = 1'000'000'000;
    for (auto layer = first; layer < last; ++layer)
      x.times.push_back({layer, {10, 20, 1}, {10, 20, 1}, {}});
  }

  double seconds() const { return std::chrono::duration<double>(now_.time_since_epoch()).count(); }

  void advance(std::chrono::milliseconds by) {
    const auto until = now_ + by;
    for (auto at = conductor_->deadline(); at && *at <= until; at = conductor_->deadline()) {
      now_ = std::max(now_, *at);
      handle(tick{});
      while (!todo_.empty())
        one_effect();
    }
    now_ = until;
  }

  void handle(const conductor_event& x) {
    const auto began = thread_ms();
    auto effects = conductor_->handle(now_, x);
    (void)conductor_->deadline(); // as the host does after each event
    spent_ms_ += thread_ms() - began;
    for (auto& e : effects)
      todo_.push_back(std::move(e));
  }

  void one_effect() {
    const auto x = std::move(todo_.front());
    todo_.pop_front();
    if (const auto* r = std::get_if<request_plan>(&x)) {
      const auto began = thread_ms();
      auto answer = decide_by_liveput(job_, facts_.state_bytes, r->now, news_.forecast(seconds(), job_.look_ahead - 1));
      spent_ms_ += thread_ms() - began;
      planner_ms = thread_ms() - began;
      handle(plan_chosen{r->request, std::move(answer)});
    } else if (const auto* t = std::get_if<tell>(&x)) {
      if (t->to.instance != "keeper") // which is silent
        all_.tell(t->to, *t->what);
    }
    if (todo_.empty())
      all_.settle();
  }

  job_specification job_;
  model_facts facts_;
  std::unique_ptr<conductor> conductor_;
  fleet_recorder news_;
  carried_executors all_;
  std::deque<effect> todo_;
  time_point now_ = time_point{} + 1h;
  std::uint64_t joined_ = 0;
  double spent_ms_ = 0;

public:
  double planner_ms = 0; ///< of the last decision
};

void losses_and_reports(std::uint32_t slots, figures& out) {
  large_cluster x(slots);
  std::vector<double> loss, planner, report;
  for (std::size_t i = 0; i < 30; ++i) {
    loss.push_back(x.lose(i * 37));
    planner.push_back(x.planner_ms);
    x.run_until(phase::running);
    for (int k = 0; k < 2; ++k)
      report.push_back(x.step());
    x.join();
    x.run_until(phase::running);
    report.push_back(x.step());
  }
  const auto ranks = x.machine().view().grid->ranks();
  const double report_us = median(report) * 1000;
  const double reports_per_s = std::min(ranks / 0.2, 200.0); // see gpu/training/stage_executor.cpp
  const double share = report_us * 1e-6 * reports_per_s;
  const auto fleet_name = std::to_string(slots) + " slots: ";
  out.note(fleet_name + "from a loss to its PREPAREs, median, ms", median(loss));
  out.note(fleet_name + "of it the planner, median, ms", median(planner));
  out.at_most(fleet_name + "from a loss to its PREPAREs, p99, ms", percentile(loss, 0.99), loss_limit_ms);
  out.note(fleet_name + "a report, microseconds", report_us);
  out.at_most(fleet_name + "reports of steps, share of a core", share, progress_limit);
}

/// D×P slots that hold their stage, and some spares.
std::vector<candidate> fleet(std::uint32_t width, std::uint32_t stages, std::uint32_t spares, const version& at) {
  std::vector<candidate> result;
  for (std::uint32_t i = 0; i < width * stages + spares; ++i) {
    candidate c;
    c.where = {{"i-0123456789abcdef" + std::to_string(i), {i + 1}, 0}, "10.123.123.123", 40'000};
    c.age = i;
    if (i < width * stages)
      for (auto l = i % stages * layers / stages; l < (i % stages + 1) * layers / stages; ++l)
        c.held.push_back({l, at});
    result.push_back(std::move(c));
  }
  return result;
}

void plans(std::uint32_t slots, figures& out) {
  const std::vector<std::uint64_t> bytes(layers, layer_bytes);
  const std::vector<double> ms(layers, 1);
  const version at{10, {1}};
  const auto width = slots / depth;
  const auto bounds = partition_layers(ms, depth);
  auto all = fleet(width, depth, 0, at);
  double slowest_ms = 0;
  placement before{width, depth, bounds, {}};
  for (const auto& c : all)
    before.participants.push_back(c.where);
  const auto time = [&](const char* what, std::uint32_t to_width, std::uint32_t to_depth,
                        const std::vector<candidate>& c, const version& v) {
    std::vector<double> took;
    std::uint64_t moved = 0;
    for (int i = 0; i < 5; ++i) {
      const auto began = thread_ms();
      moved = plan_change(to_width, partition_layers(ms, to_depth), c, v, bytes, &before).bytes;
      took.push_back(thread_ms() - began);
      if (took.back() > 2000)
        break;
    }
    const auto change = std::to_string(slots) + " slots, " + what + ": ";
    out.note(change + "placement and transfers, ms", median(took));
    out.note(change + "layers moved", static_cast<double>(moved / layer_bytes));
    slowest_ms = std::max(slowest_ms, median(took));
  };
  auto lost = all;
  lost.erase(lost.begin() + width * depth / 2);
  time("a loss, narrower", width - 1, depth, lost, at);
  auto joined = lost;
  joined.push_back(fleet(0, depth, 1, at).back());
  joined.back().where.slot.instance = "new";
  joined.back().age = 10'000;
  time("a loss, a spare takes over", width, depth, joined, at);
  time("another depth", slots / (depth + 1), depth + 1, lost, at);
  time("the first start", width, depth, fleet(0, depth, slots, {}), {});
  auto mixed = fleet(width / 2, depth, slots - width / 2 * depth, at);
  time("twice as wide", width, depth, mixed, at);
  out.only_shown(std::to_string(slots) + " slots: placement and transfers of the slowest kind of change, ms",
                 slowest_ms);
}

} // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  figures out;
  for (const std::uint32_t slots : {400u, 800u, 1'000u}) {
    if (quick && slots < 1'000)
      continue;
    plans(slots, out);
    losses_and_reports(slots, out);
  }
  return out.status();
}
