// The conductor in virtual time against dummy executors that answer at once unless told not to. What is tested here is
// time and refusal; failure_schedule_test has the real executors.

#include "actors/conductor.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Executors that hold state but compute nothing: training advances when the test says so.
class dummy_cluster {
  struct dummy {
    participant where;
    inventory held;
    version at;
    prepare next;
    bool running = false;
    generation generation_running;
    bool keeper = false;
    std::vector<command> told;
    std::vector<std::uint32_t> stage; ///< layers computed, while running
    std::uint64_t complete = no_step; ///< step whose gradients are complete
  };

public:
  explicit dummy_cluster(std::uint32_t layers = 4, std::uint64_t steps = 1000, std::uint64_t checkpoint_every = 0,
                         const resume_point& resume = {}) {
    job_.steps = steps;
    job_.checkpoint_every = checkpoint_every;
    job_.resume = resume;
    job_.keeper_every = 4;
    model_facts facts;
    facts.state_bytes.assign(layers, 1000);
    facts.costs.assign(layers, {1, 2, 0.1, 1000, 100});
    layers_ = layers;
    conductor_.emplace(job_id{1}, job_, facts, conductor_options{}, 1);
  }

  participant add(const std::string& name, bool keeper = false) {
    participant p{{name, {++lives_}, 0}, "127.0.0.1", 1};
    slots_[name] = {p, {}, {}, {}, false, {}, keeper, {}, {}, no_step};
    event(slot_joined{p, keeper});
    return p;
  }

  void lose(const std::string& name) {
    const auto slot = slots_.at(name).where.slot;
    slots_.erase(name);
    event(slot_lost{slot, "test"});
  }

  void notice(const std::string& name, milliseconds left) { event(slot_leaving{slot(name), now_ + left}); }

  /// A healthy step of the running generation on all its ranks.
  void step() {
    std::vector<std::pair<slot_id, report>> said;
    for (auto& [name, s] : slots_)
      if (s.running && s.at.steps < job_.steps) {
        apply(s);
        said.emplace_back(s.where.slot, progress{s.generation_running, s.at, {s.at.steps - 1}, 100, {}});
      }
    for (auto& [id, what] : said)
      event(slot_reported{id, what});
    said.clear();
    for (auto& [name, s] : slots_) // what they hold after RELEASE
      if (s.running && s.at.steps == job_.steps)
        said.emplace_back(s.where.slot, stopped{s.generation_running, s.at, s.held});
    for (auto& [id, what] : said)
      event(slot_reported{id, what});
  }

  /// All ranks have the gradients of a step, some have applied it when communication ends. False if nothing runs.
  bool half_step(std::mt19937_64& random) {
    const dummy* one = nullptr;
    for (auto& [name, s] : slots_)
      if (s.running && s.at.steps < job_.steps) {
        one = &s;
        s.complete = s.at.steps;
        if (random() % 2)
          apply(s);
      }
    if (one)
      event(slot_reported{one->where.slot, failed{one->generation_running, failure::communication, 0, "closed", {}}});
    return one;
  }

  void advance(milliseconds by) {
    const auto until = now_ + by;
    for (auto at = conductor_->deadline(); at && *at <= until; at = conductor_->deadline()) {
      now_ = std::max(now_, *at);
      event(tick{});
    }
    now_ = until;
  }

  void event(const conductor_event& x) {
    pending_.push_back(x);
    if (std::exchange(busy_, true))
      return;
    while (!pending_.empty()) {
      const auto next = pending_.front();
      pending_.pop_front();
      ++handled;
      for (const auto& e : conductor_->handle(now_, next))
        carry_out(e);
    }
    busy_ = false;
  }

  slot_id slot(const std::string& name) const { return slots_.at(name).where.slot; }
  const job_view& view() const { return conductor_->view(); }
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& log() const { return log_; }
  bool ended() const { return ended_; }

  std::set<std::string> silent;                                       ///< instances that answer nothing
  std::function<report(const std::string& name, const report&)> mend; ///< changes an answer
  std::function<bool(const report&)> hold_back;                       ///< true: an answer that is not given
  situation asked;                                                    ///< with the last question to the planner
  std::uint32_t width = 0, depth = 1; ///< the planner's choice; width 0: as wide as fits
  std::uint32_t plans = 0;
  std::uint64_t handled = 0; ///< events
  bool slow_planner = false; ///< answers only to answer_plans()
  std::map<std::string, std::vector<std::uint32_t>> disks; ///< by keeper: layers of its newest checkpoint
  std::string disk_problem;                                ///< why keepers can neither write nor read all
  bool kept_silent = false;  ///< keepers answer neither CONFIRM nor CHECKPOINT

  /// The planner answers what it was asked while it was slow, with the slots there were then.
  void answer_plans() {
    for (const auto& x : std::exchange(unanswered_, {}))
      event(x);
  }

  /// The keeper now holds what the ranks hold.
  void snapshot(const std::string& keeper) {
    auto& k = slots_.at(keeper);
    k.held.clear();
    for (const auto& [name, s] : slots_)
      if (!s.keeper)
        k.held.insert(k.held.end(), s.held.begin(), s.held.end());
    std::ranges::sort(k.held);
    k.held.erase(std::unique(k.held.begin(), k.held.end()), k.held.end());
    event(slot_reported{k.where.slot, kept{job_id{1}, k.held, {}, {}}});
  }

  /// The keeper now holds this and nothing else.
  void hold(const std::string& keeper, inventory held) {
    auto& k = slots_.at(keeper);
    k.held = std::move(held);
    event(slot_reported{k.where.slot, kept{job_id{1}, k.held, {}, {}}});
  }

  /// All ranks have stopped at the final version.
  void stop_all() {
    std::vector<std::pair<slot_id, report>> said;
    for (auto& [name, s] : slots_)
      if (std::exchange(s.running, false))
        said.emplace_back(s.where.slot, stopped{s.generation_running, s.at, s.held});
    for (auto& [id, what] : said)
      event(slot_reported{id, what});
  }

  bool has(const std::string& name) const { return slots_.contains(name); }

  void say(const std::string& name, report what) { event(slot_reported{slot(name), std::move(what)}); }

  const std::vector<command>& told(const std::string& name) { return slots_.at(name).told; }

private:
  static void apply(dummy& s) {
    s.at = {s.at.steps + 1, s.generation_running};
    s.complete = no_step;
    for (auto& h : s.held)
      if (std::ranges::binary_search(s.stage, h.layer))
        h.at = s.at;
  }

  void answer(const std::string& name, report what) {
    if (silent.contains(name))
      return;
    if (mend)
      what = mend(name, what);
    if (hold_back && hold_back(what))
      return;
    event(slot_reported{slot(name), std::move(what)});
  }

  void carry_out(const effect& x) {
    if (const auto* r = std::get_if<request_plan>(&x)) {
      ++plans;
      asked = r->now;
      decision_note note;
      note.reason = "dummy reason";
      configuration c{width ? width : r->now.slots / depth, depth, {}, 1, "dummy"};
      if (c.width * c.depth > r->now.slots)
        c.width = 0;
      for (std::uint32_t s = 0; s <= depth; ++s)
        c.first_layer.push_back(s * layers_ / depth);
      if (slow_planner)
        unanswered_.push_back({r->request, c, note});
      else
        event(plan_chosen{r->request, c, note});
    } else if (const auto* l = std::get_if<log_line>(&x)) {
      (l->level == severity::error ? errors_ : log_).push_back(l->text);
    } else if (std::holds_alternative<job_ended>(x)) {
      ended_ = true;
    } else if (const auto* t = std::get_if<tell>(&x)) {
      const auto it = slots_.find(t->to.instance);
      if (it == slots_.end() || it->second.where.slot != t->to)
        return;
      it->second.told.push_back(t->what);
      std::visit([&](const auto& c) { obey(it->first, it->second, c); }, t->what);
    }
  }

  template <class T>
  void obey(const std::string&, dummy&, const T&) {}

  void obey(const std::string& name, dummy& d, const prepare& c) {
    d.next = c;
    answer(name, prepared{c.next, checksum_of(c), "digest"});
  }

  void obey(const std::string& name, dummy& d, const stop& c) {
    if (d.running && d.generation_running == c.current) {
      d.running = false;
      answer(name, stopped{c.current, d.at, d.held});
    }
  }

  void obey(const std::string& name, dummy& d, const transfer& c) {
    if (d.next.next != c.next)
      return;
    const auto& target = d.next.target;
    for (const auto& move : d.next.moves)
      if (target.participants[move.source].slot == d.where.slot &&
          std::ranges::find(d.held, layer_version{move.layer, c.at}) == d.held.end())
        errors_.push_back(name + " shall send layer " + std::to_string(move.layer) + " which it does not hold");
    for (std::uint32_t r = 0; r < target.ranks(); ++r)
      if (target.participants[r].slot == d.where.slot) {
        for (auto l = target.first_layer[target.stage_of(r)]; l < target.first_layer[target.stage_of(r) + 1]; ++l) {
          const bool sent = std::ranges::any_of(
              d.next.moves, [&](const shard_move& m) { return m.layer == l && m.destination == r; });
          if (!sent && c.at != version{} && std::ranges::find(d.held, layer_version{l, c.at}) == d.held.end())
            errors_.push_back(name + " needs layer " + std::to_string(l) + " and is sent nothing");
          std::erase_if(d.held, [&](const auto& h) { return h.layer == l; });
          d.held.push_back({l, c.at});
        }
        d.at = c.at;
        answer(name, ready{c.next, c.at, 0});
        return;
      }
    answer(name, delivered{c.next});
  }

  void obey(const std::string& name, dummy& d, const activate& c) {
    if (d.next.next != c.next)
      return;
    d.running = true;
    d.generation_running = c.next;
    const auto& target = d.next.target;
    d.stage.clear();
    for (std::uint32_t r = 0; r < target.ranks(); ++r)
      if (target.participants[r].slot == d.where.slot)
        for (auto l = target.first_layer[target.stage_of(r)]; l < target.first_layer[target.stage_of(r) + 1]; ++l)
          d.stage.push_back(l);
    d.complete = no_step;
    answer(name, active{c.next});
    if (d.at.steps == job_.steps)
      answer(name, stopped{c.next, d.at, d.held});
  }

  void obey(const std::string& name, dummy& d, const abort_generation& c) {
    if (d.generation_running == c.current)
      d.running = false;
    answer(name, aborted{c.current, d.at, d.complete, {d.at.steps ? d.at.steps - 1 : no_step}, d.held});
  }

  void obey(const std::string&, dummy& d, const release& c) {
    std::erase_if(d.held, [&](const auto& h) { return !std::ranges::binary_search(c.keep, h.layer); });
  }

  void obey(const std::string& name, dummy& d, const confirm& c) {
    kept answer{c.job, d.held, {}, {}};
    if (c.digests)
      for (const auto& h : d.held)
        answer.digests.push_back({h.layer, "digest"});
    if (!kept_silent)
      this->answer(name, std::move(answer));
  }

  void obey(const std::string& name, dummy& d, const checkpoint& c) {
    if (kept_silent)
      return;
    checkpointed answer{c.job, c.at, {}, "/state/" + c.name, disk_problem};
    for (const auto& h : d.held)
      if (h.at == c.at)
        answer.layers.push_back(h.layer);
    if (disk_problem.empty())
      disks[name] = answer.layers;
    this->answer(name, std::move(answer));
  }

  void obey(const std::string& name, dummy& d, const restore& c) {
    for (auto layer : disks[name])
      d.held.push_back({layer, c.at});
    std::ranges::sort(d.held);
    answer(name, kept{c.job, d.held, {}, {}});
    answer(name, restored{c.job, c.at, !disk_problem.empty(), disks[name].empty() ? "no folder" : disk_problem});
  }

  void obey(const std::string& name, dummy& d, const decide& c) {
    if (d.generation_running == c.current && d.complete != no_step && d.complete == c.result.step)
      apply(d);
    d.complete = no_step;
    answer(name, decided{c.current, d.held});
  }

  job_specification job_;
  std::uint32_t layers_;
  std::optional<conductor> conductor_;
  std::map<std::string, dummy> slots_;
  std::deque<conductor_event> pending_;
  bool busy_ = false;
  time_point now_ = time_point{} + 1h;
  std::uint64_t lives_ = 0;
  std::vector<plan_chosen> unanswered_;
  std::vector<std::string> errors_, log_;
  bool ended_ = false;
};

class conductor_test : public ::testing::Test {
protected:
  void TearDown() override { EXPECT_THAT(c.errors(), ::testing::IsEmpty()); }

  /// Two workers train as 2×1 and have committed a step.
  void run_two() {
    c.add("a");
    c.add("b");
    c.advance(20ms);
    ASSERT_EQ(c.view().now, phase::running);
    c.step();
  }

  dummy_cluster c;
};

TEST_F(conductor_test, joins_are_collected_before_planning) {
  c.add("a");
  c.add("b");
  c.advance(19ms);
  EXPECT_EQ(c.plans, 0u);
  c.advance(1ms);
  EXPECT_EQ(c.plans, 1u);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().grid->width, 2u);
}

TEST_F(conductor_test, participant_that_does_not_prepare_is_left_out_and_comes_back) {
  // given: b never answers PREPARE. expected: after 60 s 1×1 with a; once b answers for its inventory, 2×1.
  c.silent = {"b"};
  c.add("a");
  c.add("b");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::preparing);
  c.advance(60s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().grid->width, 1u);
  c.step();
  c.silent.clear();
  c.advance(2s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().grid->width, 2u);
}

TEST_F(conductor_test, rank_that_does_not_answer_abort_is_treated_as_lost) {
  run_two();
  c.add("d");
  c.advance(20ms);
  ASSERT_EQ(c.view().grid->width, 3u);
  c.step();
  c.silent = {"b"};
  c.lose("d");
  EXPECT_EQ(c.view().now, phase::aborting);
  c.advance(5s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().grid->width, 1u);
}

TEST_F(conductor_test, generation_without_progress_is_aborted) {
  run_two();
  const auto g = c.view().current;
  c.advance(29s);
  EXPECT_EQ(c.view().current, g);
  c.step();
  c.advance(29s);
  EXPECT_EQ(c.view().current, g);
  c.advance(2s);
  EXPECT_GT(c.view().current, g);
  EXPECT_THAT(c.log(), Contains(HasSubstr("no progress")));
}

TEST_F(conductor_test, same_choice_changes_nothing) {
  run_two();
  const auto g = c.view().current;
  c.event(plan_wanted{"test"});
  c.advance(1s);
  EXPECT_EQ(c.view().current, g);
}

TEST_F(conductor_test, instance_under_notice_loses_its_place_without_replay) {
  run_two();
  c.notice("b", 30s);
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().grid->width, 1u);
  c.step();
  c.lose("b");
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

TEST_F(conductor_test, last_instance_under_notice_trains_to_its_end) {
  c.add("a");
  c.advance(20ms);
  c.step();
  c.notice("a", 30s);
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
  c.lose("a");
  EXPECT_EQ(c.view().now, phase::waiting);
  c.add("b");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 0u); // no keeper: version 0
}

TEST_F(conductor_test, joiner_lost_while_it_prepares_leaves_the_generation_running) {
  run_two();
  const auto g = c.view().current;
  c.silent = {"d"};
  c.add("d");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::readying);
  c.lose("d");
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().current, g);
}

TEST_F(conductor_test, join_during_a_change_waits_for_its_end) {
  run_two();
  c.silent = {"d"};
  c.add("d");
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::readying);
  const auto plans = c.plans;
  c.add("e");
  c.advance(1s);
  EXPECT_EQ(c.plans, plans);
}

TEST_F(conductor_test, node_with_other_data_is_refused_by_name) {
  run_two();
  c.mend = [](const std::string& name, const report& x) {
    auto mended = x;
    if (auto* p = std::get_if<prepared>(&mended); p && name == "d")
      p->data_digest = "other";
    return mended;
  };
  c.add("d");
  c.advance(1min);
  EXPECT_EQ(c.view().grid->width, 2u);
  EXPECT_THAT(c.log(), Contains(HasSubstr("d/0 is not used for now: its data")));
}

TEST_F(conductor_test, data_that_no_node_has_fails_the_job) {
  c.mend = [](const std::string&, const report& x) -> report {
    if (const auto* p = std::get_if<prepared>(&x))
      return failed{p->next, failure::data, 0, "/nowhere: no such file", {}};
    return x;
  };
  c.add("a");
  c.add("b");
  c.advance(1min);
  EXPECT_TRUE(c.ended());
  EXPECT_THAT(c.view().problem, HasSubstr("/nowhere"));
}

TEST_F(conductor_test, of_two_that_cannot_connect_the_younger_becomes_a_spare) {
  c.mend = [](const std::string& name, const report& x) -> report {
    if (const auto* p = std::get_if<prepared>(&x); p && name == "a" && p->next.value == 1)
      return failed{p->next, failure::unreachable, 1, "b refused", {}};
    return x;
  };
  c.add("a");
  c.add("b");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().grid->width, 1u);
  EXPECT_EQ(c.view().grid->participants[0].slot.instance, "a");
}

TEST_F(conductor_test, participant_that_failed_is_asked_again_before_steps_are_given_up) {
  // given: 1×2, no keeper; b's LibTorch throws once, but b still holds its stage. c is ready to take its place.
  // expected: nothing is sent from b while it is excluded, and its return is waited for: no step is lost.
  c.depth = 2;
  run_two();
  c.step();
  c.add("d");
  c.advance(20ms);
  const auto steps = c.view().steps_done;
  c.say("b", failed{c.view().current, failure::computation, 0, "threw", {}});
  EXPECT_EQ(c.view().now, phase::waiting);
  EXPECT_FALSE(c.ended());
  c.advance(1100ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, steps);
  EXPECT_EQ(c.view().grid->depth, 2u);
}

TEST_F(conductor_test, participant_that_fails_for_good_does_not_hold_the_job_up) {
  // given: as above, but b answers nothing any more. expected: after some back-offs the job goes on without its state.
  c.depth = 2;
  run_two();
  c.step();
  c.add("d");
  c.advance(20ms);
  c.silent = {"b"};
  c.say("b", failed{c.view().current, failure::computation, 0, "threw", {}});
  c.advance(2min);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 0u);
}

TEST_F(conductor_test, late_inventory_of_an_excluded_participant_is_not_planned_with) {
  // given: a 2×1 change fails at b, which is excluded and then says that it holds version 0 of all. expected: 1×1.
  run_two();
  c.slow_planner = true;
  c.say("b", failed{c.view().current, failure::computation, 0, "threw", {}});
  ASSERT_EQ(c.view().now, phase::planning);
  c.lose("a");
  c.add("d");
  c.say("b", aborted{c.view().current, {}, no_step, {}, {{0, {1, {1}}}, {1, {1, {1}}}, {2, {1, {1}}}, {3, {1, {1}}}}});
  c.slow_planner = false;
  c.answer_plans();
  c.advance(2s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 1u);
}

TEST_F(conductor_test, joiner_and_rank_that_both_miss_the_limit) {
  // given: 1×2 trains; the joiner B and the rank b do not answer PREPARE. expected: the joiner's miss gives the change
  // up, and b's aborts the generation that it has a place in: no excluded rank trains on.
  c.depth = 2;
  run_two();
  c.silent = {"B", "b"};
  c.width = 1;
  c.add("B");
  c.add("C");
  c.depth = 4;
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::readying);
  for (int i = 0; i < 3; ++i) {
    c.advance(20s);
    c.step();
  }
  c.depth = 2;
  EXPECT_NE(c.view().current.value, 0u);
  c.advance(10s);
  c.silent.clear();
  c.advance(1min);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, join_while_the_planner_thinks_is_planned) {
  // given: 1×2 is the least; b joins after the planner was asked about one slot. expected: it is asked again.
  c.depth = 2;
  c.slow_planner = true;
  c.add("a");
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::planning);
  c.add("b");
  c.slow_planner = false;
  c.answer_plans();
  c.advance(100ms);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, join_between_a_plan_and_its_change_is_planned_after_it) {
  // given: e joins after the planner was asked because of d, and before its answer. expected: 4×1 well before the next
  // periodic plan.
  run_two();
  c.slow_planner = true;
  c.add("d");
  c.advance(20ms);
  c.add("e");
  c.slow_planner = false;
  c.answer_plans();
  c.step();
  c.advance(1s);
  EXPECT_EQ(c.view().grid->width, 4u);
}

TEST_F(conductor_test, interval_alone_starts_a_change) {
  // given: nothing happens, but after an interval the planner answers otherwise. expected: the change, once, with what
  // it was asked for and what came of it; an answer that is the present configuration changes nothing.
  c.width = 1;
  run_two();
  const auto decisions = c.view().decision_count;
  const auto before = c.view().current;
  auto pass_an_interval = [&] {
    for (int i = 0; i < 4; ++i) {
      c.advance(15s);
      c.step();
    }
  };
  pass_an_interval();
  EXPECT_EQ(c.view().current, before);
  EXPECT_EQ(c.view().decision_count, decisions + 1);
  EXPECT_EQ(c.view().decisions.back().to.value, 0u);
  c.width = 2;
  pass_an_interval();
  EXPECT_EQ(c.view().grid->width, 2u);
  EXPECT_EQ(c.view().current.value, before.value + 1);
  EXPECT_EQ(c.view().changes.back().trigger, "the planning interval's end");
  const auto change = std::ranges::find(c.view().decisions, c.view().current, &decision_record::to);
  ASSERT_NE(change, c.view().decisions.end());
  EXPECT_EQ(change->trigger, "the planning interval's end");
  EXPECT_EQ(change->note.reason, "dummy reason");
  EXPECT_EQ(change->realised_ms, 0); // dummies take no time
}

TEST_F(conductor_test, planner_is_told_where_the_job_stands) {
  c.add("k", true);
  run_two();
  EXPECT_EQ(c.asked.current.width, 0u);
  c.notice("a", 10s);
  c.advance(20ms);
  EXPECT_TRUE(c.asked.running);
  EXPECT_EQ(c.asked.slots, 1u);
  EXPECT_EQ(c.asked.current, (shape{2, 1}));
  EXPECT_EQ(c.asked.left, std::vector<std::uint32_t>{1});
  EXPECT_EQ(c.asked.keepers, 1u);
  c.step();
  c.add("d");
  c.advance(20ms);
  c.step();
  c.lose("b");
  EXPECT_FALSE(c.asked.running);
  EXPECT_EQ(c.asked.slots, 1u);
  EXPECT_EQ(c.asked.current, (shape{2, 1}));
  EXPECT_EQ(c.asked.left, std::vector<std::uint32_t>{1});
}

TEST_F(conductor_test, stall_is_predicted_from_what_changes_took) {
  // given: a loss every now and then, after each of which ABORTED takes 40 ms and PREPARED 200. expected: after the
  // first ones the prediction is what is measured.
  for (auto name : {"a", "b", "d", "e", "f"})
    c.add(name);
  c.advance(20ms);
  c.step();
  EXPECT_EQ(c.view().changes.back().predicted_ms, 0); // nothing ran before
  for (std::string name : {"b", "d", "e", "f"}) {
    std::deque<std::pair<slot_id, report>> late;
    c.mend = [&](const std::string& from, const report& x) {
      if (std::holds_alternative<aborted>(x) || std::holds_alternative<prepared>(x))
        late.emplace_back(c.slot(from), x);
      return x;
    };
    c.hold_back = [](const report& x) {
      return std::holds_alternative<aborted>(x) || std::holds_alternative<prepared>(x);
    };
    c.lose(name);
    for (auto wait : {40ms, 200ms}) {
      c.advance(wait);
      for (const auto& [from, what] : std::exchange(late, {}))
        c.event(slot_reported{from, what});
    }
    c.mend = nullptr;
    c.hold_back = nullptr;
    ASSERT_EQ(c.view().now, phase::running);
    c.step();
    EXPECT_NEAR(c.view().changes.back().stall_ms, 240, 1e-6);
  }
  EXPECT_NEAR(c.view().changes.back().predicted_ms, 240, 1);
  c.advance(1s);
}

TEST_F(conductor_test, joiner_without_the_data_waits_while_no_other_node_is_left) {
  run_two();
  c.mend = [](const std::string& name, const report& x) -> report {
    if (const auto* p = std::get_if<prepared>(&x); p && name == "d")
      return failed{p->next, failure::data, 0, "/data: no such file", {}};
    return x;
  };
  c.lose("a");
  c.lose("b");
  c.add("d");
  c.advance(1min);
  EXPECT_FALSE(c.ended());
  EXPECT_EQ(c.view().now, phase::waiting);
  c.add("e");
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, first_step_that_takes_longer_than_the_watchdog_is_given_more_time) {
  // given: the first step takes 100 s. expected: not aborted for ever every 30 s.
  c.add("a");
  c.advance(20ms);
  auto g = c.view().current;
  int aborts = 0;
  for (milliseconds in_step{0}; in_step < 100s && aborts < 10; in_step += 1s) {
    c.advance(1s);
    if (c.view().current != std::exchange(g, c.view().current)) {
      ++aborts;
      in_step = 0s;
    }
  }
  EXPECT_EQ(aborts, 2); // after 30 s and 60 s
}

TEST_F(conductor_test, communication_that_fails_again_and_again_backs_off) {
  // given: 2×1 whose communication fails as soon as it is activated. expected: a few tries at once, then fewer.
  run_two();
  c.mend = [](const std::string& name, const report& x) -> report {
    if (const auto* p = std::get_if<ready>(&x); p && name == "b")
      return failed{p->next, failure::communication, 0, "reset", {}};
    return x;
  };
  c.plans = 0;
  c.say("a", failed{c.view().current, failure::communication, 0, "reset", {}});
  c.advance(10s);
  EXPECT_LE(c.plans, 10u);
  c.mend = {};
  c.advance(1min);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, every_activated_generation_has_its_record) {
  // given: a join is planned before the first commit of the generation that the join before it began.
  // expected: one record for each, of the right generation.
  run_two();
  const auto before = c.view().changes.size();
  c.add("d");
  c.advance(20ms);
  ASSERT_EQ(c.view().grid->width, 3u);
  c.silent = {"e"}; // readying while g's first commit is heard
  c.add("e");
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::readying);
  c.step();
  c.silent.clear();
  c.advance(1min);
  c.step();
  const auto& changes = c.view().changes;
  ASSERT_GE(changes.size(), before + 1);
  EXPECT_EQ(changes[before].configuration, "3×1");
  EXPECT_EQ(changes[before].to.value, 2u);
  EXPECT_GE(changes[before].first_commit_ms, changes[before].active_ms);
}

TEST_F(conductor_test, progress_before_the_last_active_does_not_lose_the_record) {
  c.add("a");
  c.add("b");
  bool early = false;
  c.mend = [&](const std::string& name, const report& x) -> report {
    if (const auto* p = std::get_if<active>(&x); p && name == "a" && !std::exchange(early, true))
      return progress{p->current, {1, p->current}, {0}, 100, {}};
    return x;
  };
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::activating);
  c.say("a", active{c.view().current});
  ASSERT_EQ(c.view().now, phase::running);
  ASSERT_EQ(c.view().changes.size(), 1u);
  EXPECT_GE(c.view().changes[0].active_ms, 0);
}

TEST_F(conductor_test, keeper_lost_before_its_digests_is_replaced_by_another) {
  // given: all hold the final version; the keeper is asked for digests and dies. expected: the next one is asked too.
  dummy_cluster d(4, 1);
  d.add("k", true);
  d.add("a");
  d.advance(20ms);
  d.step();
  d.stop_all();
  ASSERT_EQ(d.view().now, phase::finishing);
  d.kept_silent = true;
  d.snapshot("k");
  EXPECT_FALSE(d.ended());
  d.lose("k");
  d.kept_silent = false;
  d.add("k2", true);
  d.snapshot("k2");
  EXPECT_TRUE(d.ended());
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());
}

TEST_F(conductor_test, keeper_that_held_the_final_version_alone_is_lost) {
  // given: the worker is gone, the keeper has the final version and dies before its digests. expected: computed again.
  dummy_cluster d(4, 1);
  d.add("k", true);
  d.add("a");
  d.advance(20ms);
  d.step();
  d.kept_silent = true;
  d.snapshot("k");
  ASSERT_EQ(d.view().now, phase::finishing);
  d.lose("a");
  ASSERT_EQ(d.view().now, phase::finishing);
  d.lose("k");
  EXPECT_EQ(d.view().now, phase::waiting);
  d.add("b");
  d.advance(20ms);
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_EQ(d.view().steps_done, 0u);
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());
}

TEST_F(conductor_test, notice_while_no_keeper_holds_the_final_version_moves_it) {
  dummy_cluster d(4, 1);
  d.width = 1;
  d.add("a");
  d.advance(20ms);
  d.add("b");
  d.advance(20ms);
  d.step();
  d.stop_all();
  ASSERT_EQ(d.view().now, phase::finishing);
  d.notice("a", 30s);
  d.advance(1s);
  ASSERT_EQ(d.view().grid->participants[0].slot.instance, "b");
  EXPECT_EQ(d.view().steps_done, 1u);
}

TEST_F(conductor_test, slot_that_returns_is_told_of_the_keepers_again) {
  // given: b's executor is replaced by an empty one that was told nothing. expected: PROTECT before the next PREPARE.
  c.add("k", true);
  run_two();
  c.say("b", failed{c.view().current, failure::computation, 0, "died", {}});
  const auto before = c.told("b").size();
  c.advance(2s);
  ASSERT_EQ(c.view().grid->width, 2u);
  bool told = false;
  for (auto i = before; i < c.told("b").size() && !std::holds_alternative<prepare>(c.told("b")[i]); ++i)
    told = told || std::holds_alternative<protect>(c.told("b")[i]);
  EXPECT_TRUE(told);
}

TEST_F(conductor_test, keepers_are_told_only_the_part_of_the_chain_that_they_need) {
  c.add("k", true);
  run_two();
  for (int i = 0; i < 20; ++i) { // twenty generations of one step
    c.width = 1 + i % 2;
    c.event(plan_wanted{"test"});
    c.advance(20ms);
    c.step();
  }
  c.snapshot("k");
  ASSERT_GT(c.view().chain.size(), 10u);
  const auto& told = c.told("k");
  const auto* last = std::get_if<confirm>(&told.back());
  ASSERT_NE(last, nullptr);
  EXPECT_LE(last->chain.size(), 2u);
}

TEST_F(conductor_test, progress_heard_after_the_decision_does_not_count) {
  // given: b's last step was dropped because b did not answer ABORT; its report of that step arrives while DECIDE is
  // answered. expected: the steps done are those decided.
  run_two();
  c.silent = {"b"};
  const auto g = c.view().current;
  c.say("a", failed{g, failure::communication, 0, "closed", {}});
  ASSERT_EQ(c.view().now, phase::aborting);
  bool said = false;
  c.mend = [&](const std::string&, const report& x) -> report {
    if (std::holds_alternative<decided>(x) && !std::exchange(said, true))
      c.say("b", progress{g, {2, g}, {1}, 100, {}});
    return x;
  };
  c.advance(5s);
  ASSERT_TRUE(said);
  EXPECT_EQ(c.view().steps_done, 1u);
}

TEST_F(conductor_test, survives_whatever_happens) {
  // given: random joins, losses, notices, silences, failures, slow plans, steps and snapshots. expected: no illegal
  // transition, no exception, nobody asked for what it does not hold, no busy waiting; trains when left in peace.
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const bool ends = seed % 2;
    dummy_cluster d(5, ends ? 15 : 1'000'000);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    const auto worker = [&] { return "w" + std::to_string(below(6)); };
    const auto keeper = [&] { return "k" + std::to_string(below(2)); };
    for (int i = 0; i < 300 && !d.ended(); ++i) {
      const auto before = d.handled;
      const auto name = worker();
      const auto g = generation{d.view().current.value + below(2)};
      switch (below(14)) {
      case 0:
      case 1:
        if (!d.has(name))
          d.add(name);
        break;
      case 2:
        if (d.has(name))
          d.lose(name);
        break;
      case 3:
        if (d.has(name))
          d.notice(name, milliseconds(below(10'000)));
        break;
      case 4:
        d.silent.insert(below(3) ? name : keeper());
        break;
      case 5:
        d.silent.clear();
        break;
      case 6:
        if (d.has(name))
          d.say(name, failed{g,
                             static_cast<failure>(std::array{1, 2, 4, 5}[below(4)]),
                             static_cast<std::uint32_t>(below(4)),
                             "random",
                             {}});
        break;
      case 7:
        if (const auto k = keeper(); !d.has(k))
          d.add(k, true);
        else if (below(4) == 0)
          d.lose(k);
        else
          d.snapshot(k);
        break;
      case 8:
        d.slow_planner = below(2);
        d.answer_plans();
        break;
      case 9:
        d.depth = 1 + static_cast<std::uint32_t>(below(3));
        d.width = static_cast<std::uint32_t>(below(3));
        d.event(plan_wanted{"random"});
        break;
      case 10:
        if (below(3) == 0)
          d.half_step(random);
        break;
      default:
        d.step();
        d.advance(milliseconds(below(below(8) == 0 ? 100'000 : 50)));
      }
      ASSERT_LT(d.handled - before, 2000u) << to_string(d.view().now);
      ASSERT_THAT(d.errors(), ::testing::IsEmpty());
    }
    if (d.ended())
      continue;
    d.silent.clear();
    d.slow_planner = false;
    d.answer_plans();
    d.depth = 1;
    d.width = 0;
    d.add("fresh");
    d.add("keeper", true);
    for (int i = 0; i < 600 && !d.ended() && !(d.view().now == phase::running && !ends); ++i) {
      d.advance(1s);
      d.step();
      d.snapshot("keeper");
    }
    ASSERT_EQ(d.view().now, ends ? phase::ended : phase::running) << d.view().problem;
    ASSERT_THAT(d.errors(), ::testing::IsEmpty());
  }
}

TEST_F(conductor_test, what_the_keepers_had_complete_is_never_voided) {
  // given: the keepers were complete at version 2; then all workers are lost while one keeper's word is missing (it was
  // lost, or is not heard yet). expected: the chain still reaches version 2, so that whoever has it is believed.
  c.kept_silent = true;
  const auto keeper = c.add("k", true);
  run_two();
  c.step();
  inventory held;
  for (std::uint32_t layer = 0; layer < 4; ++layer)
    held.push_back({layer, {2, c.view().current}});
  c.event(slot_reported{keeper.slot, kept{job_id{1}, held, {{.step = 1}}, {}}});
  ASSERT_EQ(c.view().protected_version.steps, 2u);
  c.event(slot_reported{keeper.slot, kept{job_id{1}, {}, {}, {}}});
  c.lose("a");
  c.lose("b");
  EXPECT_EQ(c.view().chain.back().last, 2u);
}

TEST_F(conductor_test, cancel_ends_the_job_in_every_phase) {
  run_two();
  c.event(cancel_requested{});
  EXPECT_TRUE(c.ended());
  EXPECT_EQ(c.view().problem, "cancelled");
}

// given: a checkpoint every 8 steps, a snapshot every 4 / expected: one of each second snapshot, named by job and
// version; while three would be there the oldest goes; a job that is done has its final version on disk
TEST(conductor_checkpoints, are_written_when_due) {
  dummy_cluster d(4, 32, 8);
  d.add("k", true);
  d.add("a");
  d.advance(20ms);
  for (int i = 0; i < 32; ++i) {
    d.step();
    if (d.view().steps_done % 4 == 0 && !d.ended())
      d.snapshot("k");
  }
  EXPECT_TRUE(d.ended());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> written;
  for (const auto& x : d.told("k"))
    if (auto c = std::get_if<checkpoint>(&x)) {
      written.emplace_back(c->at.steps, c->oldest);
      EXPECT_THAT(c->name, ::testing::MatchesRegex("job-[0-9a-f]{8}/" + to_string(c->at)));
    }
  EXPECT_THAT(written, ::testing::ElementsAre(std::pair(8, 0), std::pair(16, 0), std::pair(24, 16), std::pair(32, 24)));
  EXPECT_EQ(d.view().checkpoint.steps, 32u);
  ASSERT_EQ(d.view().checkpoint_folders.size(), 1u);
  EXPECT_THAT(d.view().checkpoint_folders[0].second, HasSubstr("/state/job-"));
}

// given: no checkpoint_every, a user who asks / expected: the version that the keepers hold is written, once
TEST(conductor_checkpoints, are_written_when_asked_for) {
  dummy_cluster d;
  d.add("k", true);
  d.add("a");
  d.advance(20ms);
  d.step();
  d.event(checkpoint_wanted{});
  d.snapshot("k");
  EXPECT_EQ(d.view().checkpoint.steps, 0u) << "there was nothing to write when it was asked for";
  d.event(checkpoint_wanted{});
  EXPECT_EQ(d.view().checkpoint.steps, 1u);
  const auto told = d.told("k").size();
  d.event(checkpoint_wanted{});
  EXPECT_EQ(d.told("k").size(), told);
}

// given: a disk that is full at the end / expected: the job is not done, says why, and tries again
TEST(conductor_checkpoints, final_version_waits_for_a_full_disk) {
  dummy_cluster d(4, 1);
  d.add("k", true);
  d.add("a");
  d.advance(20ms);
  d.disk_problem = "No space left on device";
  d.step();
  d.snapshot("k");
  EXPECT_FALSE(d.ended());
  EXPECT_THAT(d.view().problem, HasSubstr("No space left on device"));
  d.advance(6s);
  EXPECT_FALSE(d.ended());
  d.disk_problem.clear();
  d.advance(6s);
  EXPECT_TRUE(d.ended());
  EXPECT_EQ(d.view().problem, "");
}

// given: two keepers with half of the layers each, a checkpoint at 4; then all but one keeper are lost, which holds
// only newer layers / expected: the job waits for the other; it goes back to 4 when that is there again, not to 0
TEST(conductor_checkpoints, are_read_when_nothing_newer_is_whole) {
  dummy_cluster d(4, 1000, 4);
  d.add("k", true);
  d.add("l", true);
  d.add("a");
  d.advance(20ms);
  const auto kept_by = [&](const std::string& name, std::uint32_t first) {
    const version at{d.view().steps_done, d.view().current};
    d.hold(name, {{first, at}, {first + 1, at}});
  };
  for (int i = 0; i < 4; ++i)
    d.step();
  kept_by("k", 0);
  kept_by("l", 2);
  ASSERT_EQ(d.view().checkpoint.steps, 4u);
  d.step();
  kept_by("k", 0);
  kept_by("l", 2);
  d.lose("a");
  d.lose("l");
  d.add("b");
  d.advance(20ms);
  EXPECT_EQ(d.view().now, phase::waiting);
  EXPECT_THAT(d.view().problem, HasSubstr("waiting for a keeper that has layers 2, 3 of the checkpoint of step 4"));
  d.add("l", true);
  d.advance(20ms);
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_EQ(d.view().steps_done, 4u);
  EXPECT_EQ(d.view().chain.back().base, 4u);
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());
}

// given: the same with one keeper whose checkpoint is damaged / expected: the job fails and names the layers
TEST(conductor_checkpoints, lost_layers_are_named) {
  dummy_cluster d(4, 1000, 4);
  d.add("k", true);
  d.add("a");
  d.advance(20ms);
  for (int i = 0; i < 4; ++i)
    d.step();
  d.snapshot("k");
  ASSERT_EQ(d.view().checkpoint.steps, 4u);
  d.lose("a");
  d.lose("k");
  d.disks["k"] = {0, 3};
  d.disk_problem = "k.safetensors is damaged";
  d.add("k", true);
  d.add("b");
  d.advance(20ms);
  EXPECT_TRUE(d.ended());
  EXPECT_EQ(d.view().problem, "layers 1, 2 of the checkpoint of step 4 are lost: k.safetensors is damaged");
}

// given: a job that goes on from step 10 of another, whose keeper has it, or none has / expected: it begins there, with
// its data and nothing from version 0; or fails and says which layers nobody has
TEST(conductor_checkpoints, a_job_goes_on_from_one) {
  dummy_cluster d(4, 1000, 0, {10, "/old/text-1/10@7", "digest"});
  d.disks["k"] = {0, 1, 2, 3};
  d.add("a");
  d.advance(20ms);
  EXPECT_EQ(d.view().now, phase::waiting);
  EXPECT_THAT(d.view().problem, HasSubstr("waiting for a keeper"));
  d.add("k", true);
  d.advance(20ms);
  ASSERT_EQ(d.view().now, phase::running);
  d.step();
  EXPECT_EQ(d.view().steps_done, 11u);
  EXPECT_EQ(d.view().chain[0], (chain_link{{0}, 0, 10}));
  EXPECT_EQ(d.view().chain[1].base, 10u);
  bool asked = false;
  for (const auto& x : d.told("k"))
    if (auto r = std::get_if<restore>(&x)) {
      asked = true;
      EXPECT_EQ(r->folder, "/old/text-1/10@7");
      EXPECT_EQ(r->at, (version{10, {0}}));
    }
  EXPECT_TRUE(asked);
  for (const auto& x : d.told("a")) {
    if (auto p = std::get_if<prepare>(&x)) {
      EXPECT_EQ(p->data_digest, "digest");
    }
  }
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());

  dummy_cluster nobody(4, 1000, 0, {10, "/old/text-1/10@7", "digest"});
  nobody.add("k", true);
  nobody.add("a");
  nobody.advance(20ms);
  EXPECT_TRUE(nobody.ended());
  EXPECT_EQ(nobody.view().problem, "layers 0, 1, 2, 3 of the checkpoint of step 10 are lost: no folder");
}

} // namespace
} // namespace parcae
