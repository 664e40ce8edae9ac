#pragma once

#include "tests/actors/conductor/dummy_cluster.hpp"

namespace parcae {

/// A cluster that is brought to a phase, and kept there.
struct stage_set {
  using enum phase;

  explicit stage_set(std::uint64_t steps = 1000, std::uint64_t checkpoint_every = 0, const resume_point& resume = {},
                     const conductor_options& options = {}, bool serves = false) :
      d(
          4,
          [&](job_specification& job) {
            job.steps = steps;
            job.checkpoint_every = checkpoint_every;
            job.resume = resume;
            if (serves) {
              job.kind = "serve";
              job.optimizer.kind = "none";
            }
          },
          options),
      serves_(serves) {}

  void two() {
    d.add("a");
    d.add("b");
    d.advance(20ms);
  }

  /// A third worker joins them.
  void third() {
    d.add("c");
    d.advance(20ms);
  }

  void bring_to(phase where) {
    if (where == waiting)
      return;
    if (where == recovering) { // a new manager, and nobody is back
      two();
      serves_ ? d.serve() : d.step();
      d.silent = {"a", "b"};
      die();
      return;
    }
    if (where == finishing) { // there is no keeper
      two();
      for (int i = 0; i < 1000 && d.view().now == running; ++i)
        d.step();
      return;
    }
    d.slow_planner = where == planning;
    if (where == preparing)
      d.keep_back<prepared>();
    if (where == clearing)
      d.keep_back<prepared, aborted>();
    two();
    if (where == clearing)
      d.lose("a");
    if (where == planning || where == preparing || where == clearing || where == running)
      return;
    serves_ ? d.serve() : d.step();
    if (where == aborting) {
      d.keep_back<aborted>();
      return d.lose("a");
    }
    if (where == deciding) {
      decide_for_both();
      return d.lose("a");
    }
    if (where == readying)
      d.keep_back<prepared>();
    else if (where == warming)
      d.keep_back<warmed>();
    else if (where == stopping)
      d.keep_back<stopped>();
    else if (where == activating)
      d.keep_back<active>();
    third();
  }

  /// a has applied a step that b applies now; neither says so.
  void decide_for_both() {
    d.keep_back<decided>();
    d.half_step(1);
  }

  /// A keeper sends the state, and no step was done since.
  void begin_from_keeper(phase until) {
    d.add("k", true);
    two();
    d.step();
    d.snapshot("k");
    if (until == activating)
      d.keep_back<active>();
    for (const auto* name : {"a", "b"})
      d.lose(name);
    third();
  }

  /// Of what was trained only the checkpoint of step 4 is left.
  void lose_all_but_a_checkpoint() {
    join("k");
    d.train(4);
    for (const auto* name : {"k", "a", "b"})
      d.lose(name);
  }

  void join(const std::string& keeper) {
    d.add(keeper, true);
    two();
  }

  /// All but the checkpoint is lost; a keeper comes that can read it.
  void read_checkpoint() {
    lose_all_but_a_checkpoint();
    d.advance(10s);
    d.kept_silent = false;
    join("k");
  }

  /// The one step is done, and a keeper holds what came of it, which no disk has.
  inventory final_is_kept() {
    join("k");
    inventory held;
    for (std::uint32_t layer = 0; layer < 4; ++layer)
      held.push_back({layer, {1, {1}}});
    d.disk_problem = "disk full";
    d.step();
    d.hold("k", held);
    return held;
  }

  /// The same, and nobody has said what came of the step.
  void final_is_kept_unheard() {
    d.mend = [](const std::string&, report x) {
      if (auto* s = std::get_if<stopped>(&x))
        s->losses.clear();
      return x;
    };
    d.keep_back<recalled>();
    final_is_kept();
  }

  /// The keeper has version 4, the only rank 5, and is lost.
  void lose_newest() {
    d.add_keeper_and_worker();
    d.train(4);
    d.step();
    d.keep_back<prepared>();
    d.say("a", failed{d.view().current, failure::communication, 0, "closed", {}});
    d.add("b");
    d.advance(1s);
    d.lose("a");
  }

  /// Both ranks have lost what they held.
  void lose_stage() {
    const auto g = d.view().current;
    for (const auto* name : {"a", "b"})
      if (d.has(name))
        release(name, aborted{g, {}, no_step, {0, 0}, {}}); // it was spoilt while it was applied
  }

  void die() {
    std::mt19937_64 random(1);
    d.kill_manager();
    d.restart_manager(random);
  }

  void late() { d.advance(2min); }
  void close() { d.event(manager_ends{d.now() + 1h}); }

  /// All that was kept back is said after all.
  void release(const std::string& name, report what) {
    d.hold_back = nullptr;
    d.say(name, std::move(what));
  }

  prepare newest_prepare(const std::string& name) {
    const auto all = d.all_told<prepare>(name);
    return all.empty() ? prepare{} : all.back();
  }

  dummy_cluster d;

private:
  const bool serves_;
};

} // namespace parcae
