#pragma once

// A worker's machine in tests, and a scene for each of its rows.

#include "gpu/executor/worker_machine.hpp"
#include "tests/support/names.hpp"
#include "tests/support/table_checks.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace parcae {
namespace {

using phase = worker_phase;
using on = worker_trigger;

constexpr generation before{4}, now{5}, after{6};
constexpr job_id job{1};
const slot_id self{"a", 0};

job_generation of(generation g) {
  return {job, g};
}

/// Two stages of two layers. This worker is of the first stage, or no rank, or not in it at all.
prepare plan(generation g, std::size_t place = 0) {
  prepare x{g, {}, job, {}, {}, {1, 2, {0, 2, 4}, {}}, {}};
  for (const auto* name : {"b", "c", "d"})
    x.target.participants.push_back({{name, 0}, "host", 1});
  if (place < 3)
    x.target.participants[place].slot = self;
  return x;
}

constexpr std::size_t no_rank = 2, nowhere = 3;

inventory stage_at(const version& x) {
  return {{0, x}, {1, x}};
}

training_state trained(std::uint64_t steps) {
  training_state x;
  x.at = {steps, now};
  x.result.step = steps - 1;
  return x;
}

/// A machine, what it said and did last, and which rows it took.
struct worker {
  worker() {
    m.observe = [this](std::size_t row, worker_phase from) { taken.emplace_back(row, from); };
  }

  void does(worker_machine::effects x) {
    const bool settles =
        std::ranges::any_of(x, [](const auto& y) { return std::holds_alternative<worker_effects::settle>(y); });
    all = std::move(x);
    if (settles)
      std::ranges::move(m.settled(keeps.value_or(m.held())), std::back_inserter(all));
  }
  void tell(const worker_command& x) { // as from the network
    auto first = m.hear(x);
    does(m.take(x));
    all.insert(all.begin(), first.begin(), first.end());
  }

  void bring_to(worker_phase to, generation g = now) {
    const bool ranks = to != phase::delivered;
    if (to == phase::absent)
      return;
    does(m.hear(plan(g, ranks ? 0 : no_rank)));
    if (to == phase::preparing)
      return;
    if (to == phase::unprepared)
      return does(m.not_connected(of(g), {g, failure::unreachable, 1, "nobody there", {}}));
    does(m.connected(of(g), 7));
    if (to == phase::prepared)
      return;
    if (to == phase::cut)
      return does(m.hear(abort_generation{g}));
    if (to == phase::warming)
      return tell(warm{g});
    tell(activate{g, {3, before}});
    if (to == phase::moving)
      return;
    if (to == phase::unmoved)
      return does(m.not_moved(of(g), failure::communication, "closed", {}));
    does(m.moved(of(g), stage_at({3, before})));
    if (to == phase::delivered)
      return;
    training_state begun;
    begun.at = {3, before};
    does(m.begun(begun));
    auto x = trained(4);
    if (to == phase::running)
      return;
    if (to == phase::stopped) {
      x.result.stop = true;
      return does(m.committed(x));
    }
    if (to == phase::broken)
      return does(m.step_failed(x, failure::communication, "closed"));
    does(m.hear(abort_generation{g}));
    if (to == phase::aborted)
      does(m.take(abort_generation{g}));
  }

  /// Names of what it did, reports by theirs.
  std::vector<std::string> did() const { return names_of<worker_effects::say>(all, report_names, effect_names); }

  template <class T>
  T said() const {
    return report_in<T, worker_effects::say>(all);
  }

  static constexpr auto report_names =
      std::to_array<const char*>({"loaded", "PREPARED", "WARMED", "STOPPED", "ACTIVE", "ABORTED", "DECIDED", "PROGRESS",
                                  "EVALUATED", "TRACED", "FAILED", "RECALLED", "SERVED"});
  static constexpr auto effect_names = std::to_array<const char*>({"say",
                                                                   "connect",
                                                                   "cut",
                                                                   "drop",
                                                                   "warm",
                                                                   "keep followed",
                                                                   "move",
                                                                   "leave",
                                                                   "begin",
                                                                   "ask to stop",
                                                                   "ask for a snapshot",
                                                                   "settle",
                                                                   "apply",
                                                                   "drop gradients",
                                                                   "send a snapshot",
                                                                   "progress",
                                                                   "trace",
                                                                   "free",
                                                                   "make room",
                                                                   "use keepers",
                                                                   "forget"});
  static_assert(report_names.size() == std::variant_size_v<worker_report>, "each report has a name, by its place");
  static_assert(effect_names.size() == std::variant_size_v<worker_effect>, "each effect has a name, by its place");

  worker_machine m{self};
  worker_machine::effects all;      ///< of the last call
  std::optional<inventory> keeps{}; ///< when nothing moves any more; none: what it held
  std::vector<std::pair<std::size_t, worker_phase>> taken;
};

protect with_keepers(bool now = false, bool whole = false) {
  return {job, {{{{"k", 0}, "host", 1}, {0, 1}}}, {}, now, whole};
}

commit_result result_of(std::uint64_t step) {
  commit_result x;
  x.step = step;
  return x;
}

using play = std::function<void(worker&, worker_phase from)>;

/// What brings each row about, from a phase that it names.
std::map<std::pair<worker_trigger, std::string>, play> scenes() {
  const auto final_step = [](worker& w, worker_phase) {
    auto x = trained(4);
    x.is_final = true;
    w.does(w.m.no_step_left(x));
  };
  const auto told = [](worker_command x) { return [x](worker& w, worker_phase) { w.tell(x); }; };
  const auto heard = [](worker_command x) { return [x](worker& w, worker_phase) { w.does(w.m.hear(x)); }; };
  const auto moves = [](worker& w, worker_phase) { w.does(w.m.moved(of(now), stage_at({3, before}))); };
  const auto begins = [](bool last) {
    return [last](worker& w, worker_phase) {
      training_state x;
      x.at = {3, before};
      x.is_final = last;
      w.does(w.m.begun(x));
    };
  };
  const auto open = [](worker& w, worker_phase) { // its gradients are complete
    auto x = trained(4);
    x.complete = 4;
    w.m.interrupted(x);
    w.tell(decide{now, result_of(4)});
  };
  return {
      {{on::prepare_heard, "it is no participant"},
       [](worker& w, worker_phase) { w.does(w.m.hear(plan(now, nowhere))); }},
      {{on::prepare_heard, ""}, [](worker& w, worker_phase) { w.does(w.m.hear(plan(now))); }},
      {{on::connected, ""}, [](worker& w, worker_phase) { w.does(w.m.connected(of(now), 7)); }},
      {{on::not_connected, ""}, [](worker& w, worker_phase) { w.does(w.m.not_connected(of(now), {})); }},
      {{on::warm, ""}, told(warm{now})},
      {{on::followed, ""}, [](worker& w, worker_phase) { w.does(w.m.warmed(of(now), 10, 2)); }},
      {{on::not_fed, ""},
       [](worker& w, worker_phase) { w.does(w.m.not_fed(of(now), failure::communication, "closed")); }},
      {{on::stop_heard, ""}, heard(stop{now})},
      {{on::activate_heard, ""}, heard(activate{now, {}})},
      {{on::abort_heard, ""}, heard(abort_generation{now})},
      {{on::stop, ""}, [](worker& w, worker_phase) { w.does(w.m.take(stop{now})); }},
      {{on::moved, "a rank"}, moves},
      {{on::moved, ""},
       [moves](worker&, worker_phase) {
         worker w;
         w.does(w.m.hear(plan(now, no_rank)));
         w.does(w.m.connected(of(now), 7));
         w.tell(activate{now, {3, before}});
         moves(w, phase::moving);
         EXPECT_THAT(w.did(), IsEmpty());
         throw w.taken.back(); // of another worker than the one brought here
       }},
      {{on::not_moved, ""},
       [](worker& w, worker_phase) { w.does(w.m.not_moved(of(now), failure::communication, "closed", {})); }},
      {{on::activate, ""}, told(activate{now, {3, before}})},
      {{on::begun, "at the last version"}, begins(true)},
      {{on::begun, ""}, begins(false)},
      {{on::evaluated, ""}, [](worker& w, worker_phase) { w.does(w.m.evaluated(trained(4), 0, {1.0}, 0.5)); }},
      {{on::committed, "a rank asked to stop, and steps are left"},
       [](worker& w, worker_phase) {
         auto x = trained(4);
         x.result.stop = true;
         w.does(w.m.committed(x));
       }},
      {{on::committed, ""}, [](worker& w, worker_phase) { w.does(w.m.committed(trained(4))); }},
      {{on::no_step_left, ""}, final_step},
      {{on::drained, ""}, [](worker& w, worker_phase) { w.does(w.m.drained(trained(3))); }},
      {{on::step_failed, ""},
       [](worker& w, worker_phase) { w.does(w.m.step_failed(trained(3), failure::communication, "closed")); }},
      {{on::step_failed, "not for want of its connections"},
       [](worker& w, worker_phase) { w.does(w.m.step_failed(trained(3), failure::computation, "NaN")); }},
      {{on::abort, ""}, [](worker& w, worker_phase) { w.all = w.m.take(abort_generation{now}); }},
      {{on::abort, "layers that went ahead are to be kept"},
       [](worker&, worker_phase) {
         worker w;
         w.bring_to(phase::warming);
         w.tell(abort_generation{now, 0, true});
         EXPECT_THAT(w.did(), ElementsAre("cut", "keep followed"));
         throw w.taken.back(); // of another worker than the one brought here
       }},
      {{on::abort, "layers that went ahead were kept in vain"},
       [](worker&, worker_phase) {
         worker w;
         w.bring_to(phase::warming);
         w.tell(abort_generation{now, 0, true});
         w.does(w.m.kept_followed(of(now), stage_at({3, before})));
         w.tell(abort_generation{now});
         EXPECT_THAT(w.did(), ElementsAre("free", "ABORTED"));
         throw w.taken.back();
       }},
      {{on::settled, ""},
       [](worker& w, worker_phase from) {
         w.does(from == phase::cut ? w.m.kept_followed(of(now), w.m.held()) : w.m.settled(w.m.held()));
       }},
      {{on::decide, "its step is open here"}, open},
      {{on::decide, ""}, told(decide{now, {}})},
      {{on::applied, ""}, [](worker& w, worker_phase) { w.does(w.m.applied(trained(5))); }},
      {{on::not_applied, ""},
       [](worker& w, worker_phase) {
         auto x = trained(4);
         x.voided = true;
         w.does(w.m.not_applied(x, "no memory"));
       }},
      {{on::superseded, ""},
       [](worker& w, worker_phase) {
         w.bring_to(phase::prepared, after);
         w.tell(activate{after, {3, before}});
       }},
      {{on::left_behind, ""}, told(release{after, {}})},
      {{on::released, "no rank"},
       [](worker& w, worker_phase from) { // the one brought here may be a rank
         if (from == phase::delivered)
           return w.tell(release{now, {}});
         worker other;
         other.does(other.m.hear(plan(now, no_rank)));
         if (from == phase::unprepared)
           other.does(other.m.not_connected(of(now), {}));
         else if (from != phase::preparing)
           other.does(other.m.connected(of(now), 7));
         if (from == phase::moving || from == phase::unmoved)
           other.tell(activate{now, {3, before}});
         if (from == phase::warming)
           other.tell(warm{now});
         if (from == phase::unmoved)
           other.does(other.m.not_moved(of(now), failure::refused, "", {}));
         if (from == phase::cut)
           other.does(other.m.hear(abort_generation{now}));
         other.tell(release{now, {}});
         EXPECT_THAT(other.did(), ElementsAre("drop"));
         throw other.taken.back();
       }},
      {{on::trace, ""}, told(trace_steps{now, 3})},
      {{on::protect, "a snapshot is due"}, told(with_keepers(true))},
      {{on::protect, "the whole stage is asked for, and is good"}, told(with_keepers(false, true))},
      {{on::protect, "at the last version, and that is good"},
       [](worker& w, worker_phase) {
         auto x = trained(4);
         x.is_final = true;
         w.m.interrupted(x);
         w.tell(with_keepers());
       }},
      {{on::forget, ""}, told(forget{job})},
  };
}

} // namespace
} // namespace parcae
