// The conductor in virtual time against dummy executors that answer at once unless told not to. What is tested here is
// time and refusal; failure_schedule_test has the real executors.

#include "actors/conductor.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <set>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;

/// Executors that hold state but compute nothing: training advances when the test says so.
class dummy_cluster {
public:
  explicit dummy_cluster(std::uint32_t layers = 4) {
    job_.steps = 1000;
    model_facts facts;
    facts.state_bytes.assign(layers, 1000);
    facts.costs.assign(layers, {1, 2, 0.1, 1000, 100});
    layers_ = layers;
    conductor_.emplace(job_id{1}, job_, facts, conductor_options{}, 1);
  }

  participant add(const std::string& name, bool keeper = false) {
    participant p{{name, {++lives_}, 0}, "127.0.0.1", 1};
    slots_[name] = {p, {}, {}, {}, false, 0};
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
      if (s.running) {
        s.at = {s.at.steps + 1, s.generation_running};
        for (auto& h : s.held)
          h.at = s.at;
        said.emplace_back(s.where.slot, progress{s.generation_running, s.at, {s.at.steps - 1}, 100, {}});
      }
    for (auto& [id, what] : said)
      event(slot_reported{id, what});
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
  std::uint32_t width = 0, depth = 1; ///< the planner's choice; width 0: as wide as fits
  std::uint32_t plans = 0;

private:
  struct dummy {
    participant where;
    inventory held;
    version at;
    prepare next;
    bool running = false;
    generation generation_running;
  };

  void answer(const std::string& name, report what) {
    if (silent.contains(name))
      return;
    if (mend)
      what = mend(name, what);
    event(slot_reported{slot(name), std::move(what)});
  }

  void carry_out(const effect& x) {
    if (const auto* r = std::get_if<request_plan>(&x)) {
      ++plans;
      configuration c{width ? width : r->slots / depth, depth, {}, 1, "dummy"};
      if (c.width * c.depth > r->slots)
        c.width = 0;
      for (std::uint32_t s = 0; s <= depth; ++s)
        c.first_layer.push_back(s * layers_ / depth);
      event(plan_chosen{r->request, c});
    } else if (const auto* l = std::get_if<log_line>(&x)) {
      (l->level == severity::error ? errors_ : log_).push_back(l->text);
    } else if (std::holds_alternative<job_ended>(x)) {
      ended_ = true;
    } else if (const auto* t = std::get_if<tell>(&x)) {
      const auto it = slots_.find(t->to.instance);
      if (it != slots_.end() && it->second.where.slot == t->to)
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
    if (d.running && d.generation_running == c.current && !silent.contains(name)) {
      d.running = false;
      answer(name, stopped{c.current, d.at, d.held});
    }
  }

  void obey(const std::string& name, dummy& d, const transfer& c) {
    if (d.next.next != c.next || silent.contains(name))
      return;
    const auto& target = d.next.target;
    for (std::uint32_t r = 0; r < target.ranks(); ++r)
      if (target.participants[r].slot == d.where.slot) {
        d.held.clear();
        for (auto l = target.first_layer[target.stage_of(r)]; l < target.first_layer[target.stage_of(r) + 1]; ++l)
          d.held.push_back({l, c.at});
        d.at = c.at;
        answer(name, ready{c.next, c.at, 0});
        return;
      }
    answer(name, delivered{c.next});
  }

  void obey(const std::string& name, dummy& d, const activate& c) {
    d.running = true;
    d.generation_running = c.next;
    answer(name, active{c.next});
  }

  void obey(const std::string& name, dummy& d, const abort_generation& c) {
    if (d.generation_running == c.current)
      d.running = false;
    answer(name, aborted{c.current, d.at, no_step, {d.at.steps ? d.at.steps - 1 : no_step}, d.held});
  }

  void obey(const std::string& name, dummy& d, const decide& c) { answer(name, decided{c.current, d.held}); }

  job_specification job_;
  std::uint32_t layers_;
  std::optional<conductor> conductor_;
  std::map<std::string, dummy> slots_;
  std::deque<conductor_event> pending_;
  bool busy_ = false;
  time_point now_ = time_point{} + 1h;
  std::uint64_t lives_ = 0;
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

TEST_F(conductor_test, cancel_ends_the_job_in_every_phase) {
  run_two();
  c.event(cancel_requested{});
  EXPECT_TRUE(c.ended());
  EXPECT_EQ(c.view().problem, "cancelled");
}

} // namespace
} // namespace parcae
