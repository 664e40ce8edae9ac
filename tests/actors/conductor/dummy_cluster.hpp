#pragma once

// The conductor in virtual time against dummy executors that answer at once unless told not to. What is tested with it
// is time and refusal; failure_schedule_test has the real executors.

#include "actors/conductor/conductor.hpp"
#include "tests/actors/conductor/dummy_executor.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace parcae {

using namespace std::chrono_literals;

/// Executors that hold state but compute nothing: training advances when the test says so.
class dummy_cluster {
public:
  explicit dummy_cluster(std::uint32_t layers = 4, std::uint64_t steps = 1000, std::uint64_t checkpoint_every = 0,
                         const resume_point& resume = {}) :
      dummy_cluster(layers, [&](job_specification& job) {
        job.steps = steps;
        job.checkpoint_every = checkpoint_every;
        job.resume = resume;
      }) {}

  dummy_cluster(std::uint32_t layers, const std::function<void(job_specification&)>& describe) {
    job_.keeper_every = 4;
    describe(job_);
    layers_ = layers;
    begin();
  }

  /// The manager dies after so many more effects; 0: now. What it is told until it is started again is lost.
  void kill_manager(std::uint64_t after = 0) {
    effects_left_ = after;
    if (after == 0)
      die();
  }
  bool is_dead() const { return !conductor_; }

  /// With what the journal has, perhaps without what could be `lost` of it. Slots join in random order.
  void restart_manager(std::mt19937_64& random, bool lost = false) {
    memory_ = lost ? durable_ : memory_;
    ended_ = memory_.over;
    busy_ = false;
    pending_.clear();
    unanswered_.clear();
    begin();
    if (ended_)
      return;
    std::vector<std::string> names;
    for (const auto& [name, s] : slots_)
      names.push_back(name);
    std::ranges::shuffle(names, random);
    for (const auto& name : names)
      if (const auto it = slots_.find(name); it != slots_.end())
        event(slot_joined{it->second.where, it->second.keeper});
  }

  participant add(const std::string& name, bool keeper = false, const machine_facts& machine = {}) {
    participant p{{name, {++lives_}, 0}, "127.0.0.1", 1};
    slots_[name] = {p, {}, {}, {}, false, false, {}, keeper, {}, {}, {}, no_step, false, false};
    event(slot_joined{p, keeper, {}, machine});
    return p;
  }

  void lose(const std::string& name) {
    const auto slot = slots_.at(name).where.slot;
    lost_[name] = slots_.at(name);
    if (is_dead() && slots_.at(name).running)
      break_generation(slots_.at(name).generation_running);
    slots_.erase(name);
    event(slot_lost{slot, "test"});
  }

  /// The life that was lost last joins again, with what it holds.
  void come_back(const std::string& name) {
    const auto& back = slots_[name] = lost_.at(name);
    event(slot_joined{back.where, back.keeper});
  }

  /// It has a new connection.
  void reconnect(const std::string& name) { event(slot_returned{slot(name)}); }

  /// No event is handled for so long.
  void stand_still(milliseconds x) { now_ += x; }

  time_point now() const { return now_; }
  conductor& machine() { return *conductor_; }
  const std::string& why_ended() const { return why_ended_; }

  void notice(const std::string& name, milliseconds left) { event(slot_leaving{slot(name), now_ + left}); }

  /// A healthy step of the running generation on all its ranks.
  void step() {
    std::vector<std::pair<slot_id, report>> said;
    for (auto& [name, s] : slots_)
      if (trains(s)) {
        apply(s);
        said.emplace_back(s.where.slot, progress{s.generation_running, s.at, {s.at.steps - 1, loss}, 100, {}});
      }
    for (auto& [id, what] : said)
      event(slot_reported{id, what});
    std::vector<std::pair<std::string, report>> last;
    for (auto& [name, s] : slots_) // what they hold after RELEASE
      if (s.running && s.at.steps == job_.steps)
        last.emplace_back(name, stopped{s.generation_running, s.at, s.held});
    for (auto& [name, what] : last)
      answer(name, what);
  }

  /// All ranks have the gradients of a step, some have applied it when communication ends. False if nothing runs.
  bool half_step(std::mt19937_64& random) {
    const dummy_executor* one = nullptr;
    for (auto& [name, s] : slots_)
      if (trains(s)) {
        one = &s;
        s.complete = s.at.steps;
        if (random() % 2)
          apply(s);
      }
    if (one)
      break_generation(one->generation_running);
    if (one)
      event(slot_reported{one->where.slot, failed{one->generation_running, failure::communication, 0, "closed", {}}});
    return one;
  }

  void advance(milliseconds by) {
    const auto until = now_ + by;
    for (auto at = next(); at && *at <= until; at = next()) {
      now_ = std::max(now_, *at);
      event(tick{});
    }
    now_ = until;
  }

  void event(const conductor_event& x) {
    if (is_dead())
      return;
    pending_.push_back(x);
    if (std::exchange(busy_, true))
      return;
    while (!pending_.empty()) {
      const auto next = pending_.front();
      pending_.pop_front();
      ++handled;
      const auto effects = conductor_->handle(now_, next);
      view_.reset();
      for (const auto& e : effects) {
        if (effects_left_ && (*effects_left_)-- == 0)
          return die();
        carry_out(e);
      }
    }
    busy_ = false;
  }

  slot_id slot(const std::string& name) const { return slots_.at(name).where.slot; }
  /// Valid until the next event.
  const job_view& view() const {
    if (!view_)
      view_ = conductor_->view();
    return *view_;
  }
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& log() const { return log_; }
  bool ended() const { return ended_; }
  const job_memory& durable() const { return durable_; } ///< what is in the journal, on disk
  bool writes(const std::string& keeper) const { return conductor_->writes(slot(keeper)); }

  job_past past;                                                      ///< what the next manager finds of it
  std::set<std::string> silent;                                       ///< instances that answer nothing but LOAD
  std::function<report(const std::string& name, const report&)> mend; ///< changes an answer
  std::function<bool(const report&)> hold_back;                       ///< true: an answer that is not given
  std::function<bool(const std::string& name, const command&)> drop;  ///< true: a command that does not arrive
  situation asked;                                                    ///< with the last question to the planner
  std::uint32_t width = 0, depth = 1; ///< the planner's choice; width 0: as wide as fits
  double loss = 0;                    ///< of every step
  std::uint32_t plans = 0;
  std::uint64_t handled = 0;                               ///< events
  bool slow_planner = false;                               ///< answers only to answer_plans()
  std::map<std::string, std::vector<std::uint32_t>> disks; ///< by keeper: layers of its newest checkpoint
  std::string disk_problem;                                ///< why keepers can neither write nor read all
  bool store_is_away = false;                              ///< what was written cannot be reached
  std::vector<std::pair<std::size_t, phase>> taken;        ///< rows of the transition table, and from where
  bool kept_silent = false;                                ///< keepers answer neither CONFIRM nor CHECKPOINT

  /// The planner answers what it was asked while it was slow, with the slots there were then.
  void answer_plans() {
    for (const auto& x : std::exchange(unanswered_, {}))
      event(x);
  }

  /// One keeper, k, and one worker, a, which trains.
  void add_keeper_and_worker() {
    add("k", true);
    add("a");
    advance(20ms);
  }

  /// So many steps, the last of which the keeper has then.
  void train(int steps) {
    for (int i = 0; i < steps; ++i)
      step();
    snapshot("k");
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
    hold_unsaid(keeper, std::move(held));
    auto& k = slots_.at(keeper);
    event(slot_reported{k.where.slot, kept{job_id{1}, k.held, {}, {}}});
  }

  /// Its word is on its way.
  void hold_unsaid(const std::string& keeper, inventory held) { slots_.at(keeper).held = std::move(held); }

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

  /// Steps of the newest version that anybody holds.
  std::uint64_t reached() const {
    std::uint64_t most = 0;
    for (const auto& [name, s] : slots_)
      for (const auto& h : s.held)
        most = std::max(most, h.at.steps);
    return most;
  }

private:
  /// A step needs all ranks.
  bool trains(const dummy_executor& x) const {
    for (std::uint32_t r = 0; r < x.grid.ranks(); ++r) {
      const auto other = slots_.find(x.grid.participants[r].slot.instance);
      if (other == slots_.end() || !other->second.running || other->second.generation_running != x.generation_running)
        return false;
    }
    return x.running && x.at.steps < job_.steps;
  }

  void begin() {
    model_facts facts;
    facts.state_bytes.assign(layers_, 1000);
    facts.costs.assign(layers_, {1, 2, 0.1, 1000, 100});
    view_.reset();
    conductor_ = conductor::make({job_id{1}, job_, facts, conductor_options{}, secret_key{{1}}, memory_, past},
                                 [this](std::size_t row, phase from) { taken.emplace_back(row, from); });
  }

  void die() {
    effects_left_.reset();
    conductor_.reset();
    pending_.clear();
    busy_ = false;
  }

  std::optional<time_point> next() const { return is_dead() ? std::nullopt : conductor_->deadline(); }

  /// Nobody hears of it.
  void break_generation(generation g) {
    for (auto& [name, s] : slots_)
      if (s.generation_running == g && s.running) {
        s.running = false;
        s.broken = true;
      }
  }

  static void apply(dummy_executor& s) {
    s.at = {s.at.steps + 1, s.generation_running};
    s.complete = no_step;
    for (auto& h : s.held)
      if (std::ranges::binary_search(s.stage, h.layer))
        h.at = s.at;
  }

  void answer(const std::string& name, report what) {
    if (silent.contains(name) && !std::holds_alternative<loaded>(what))
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
      decision why;
      why.reason = "dummy reason";
      configuration c{width ? width : r->now.slots / depth, depth, {}, 1, "dummy"};
      if (c.width * c.depth > r->now.slots)
        c.width = 0;
      for (std::uint32_t s = 0; s <= depth; ++s)
        c.first_layer.push_back(s * layers_ / depth);
      if (slow_planner)
        unanswered_.push_back({r->request, {c, why}});
      else
        event(plan_chosen{r->request, {c, why}});
    } else if (const auto* j = std::get_if<record>(&x)) {
      memory_ = j->now;
      if (!j->before)
        durable_ = memory_;
    } else if (const auto* l = std::get_if<log_line>(&x)) {
      (l->level == severity::error ? errors_ : log_).push_back(l->text);
    } else if (const auto* e = std::get_if<job_ended>(&x)) {
      ended_ = true;
      why_ended_ = e->why;
    } else if (const auto* t = std::get_if<tell>(&x)) {
      const auto it = slots_.find(t->to.instance);
      if (it == slots_.end() || it->second.where.slot != t->to)
        return;
      if (drop && drop(it->first, *t->what))
        return;
      it->second.told.push_back(*t->what);
      std::visit([&](const auto& c) { obey(it->first, it->second, c); }, *t->what);
    }
  }

  template <class T>
  void obey(const std::string&, dummy_executor&, const T&) {}

  void obey(const std::string& name, dummy_executor&, const load& c) { answer(name, loaded{c.job, "digest"}); }

  void obey(const std::string& name, dummy_executor& d, const prepare& c) {
    d.next = c;
    answer(name, prepared{c.next, checksum_of(c)});
  }

  void obey(const std::string& name, dummy_executor& d, const stop& c) {
    if (d.generation_running == c.current && d.broken)
      answer(name, failed{c.current, failure::communication, 0, "closed", d.held});
    if (d.generation_running != c.current || (!d.running && !d.stopped))
      return;
    for (auto& [other, s] : slots_) // by the stop bit, whoever else is told
      if (s.generation_running == c.current && s.running) {
        s.running = false;
        s.stopped = true;
      }
    answer(name, stopped{c.current, d.at, d.held});
  }

  void obey(const std::string& name, dummy_executor& d, const transfer& c) {
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

  void obey(const std::string& name, dummy_executor& d, const activate& c) {
    if (d.generation_running == c.next) { // repeated
      answer(name, active{c.next});
      if (d.stopped || d.at.steps == job_.steps)
        answer(name, stopped{c.next, d.at, d.held});
      else if (d.broken || d.aborted)
        answer(name, failed{c.next, failure::communication, 0, "closed", d.held});
      return;
    }
    if (d.next.next != c.next)
      return;
    d.broken = d.aborted = false;
    d.running = true;
    d.stopped = false;
    d.generation_running = c.next;
    const auto& target = d.grid = d.next.target;
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

  void obey(const std::string& name, dummy_executor& d, const abort_generation& c) {
    if (d.generation_running == c.current) {
      d.running = d.broken = false;
      d.aborted = true;
      break_generation(c.current); // of the others
    }
    answer(name, aborted{c.current, d.at, d.complete, {d.at.steps ? d.at.steps - 1 : no_step}, d.held});
  }

  void obey(const std::string&, dummy_executor& d, const release& c) {
    std::erase_if(d.held, [&](const auto& h) { return !std::ranges::binary_search(c.keep, h.layer); });
  }

  void obey(const std::string& name, dummy_executor& d, const confirm& c) {
    kept answer{c.job, d.held, {}, {}};
    if (c.digests)
      for (const auto& h : d.held)
        answer.digests.push_back({h.layer, "digest"});
    if (!kept_silent)
      this->answer(name, std::move(answer));
  }

  void obey(const std::string& name, dummy_executor& d, const checkpoint& c) {
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

  void obey(const std::string& name, dummy_executor& d, const restore& c) {
    if (store_is_away)
      return answer(name, restored{c.job, c.at, false, "the store is away", true});
    for (auto layer : disks[name])
      d.held.push_back({layer, c.at});
    std::ranges::sort(d.held);
    answer(name, kept{c.job, d.held, {}, {}});
    answer(name, restored{c.job, c.at, !disk_problem.empty(), disks[name].empty() ? "no folder" : disk_problem});
  }

  void obey(const std::string& name, dummy_executor& d, const decide& c) {
    if (d.generation_running == c.current && d.complete != no_step && d.complete == c.result.step)
      apply(d);
    d.complete = no_step;
    answer(name, decided{c.current, d.held});
  }

  mutable std::optional<job_view> view_; ///< as computed since the last event
  job_specification job_;
  std::uint32_t layers_;
  std::unique_ptr<conductor> conductor_; ///< null: the manager is dead
  std::optional<std::uint64_t> effects_left_;
  job_memory memory_, durable_; ///< the journal; and as far as it is on disk
  std::map<std::string, dummy_executor> slots_;
  std::deque<conductor_event> pending_;
  bool busy_ = false;
  time_point now_ = time_point{} + 1h;
  std::uint64_t lives_ = 0;
  std::vector<plan_chosen> unanswered_;
  std::vector<std::string> errors_, log_;
  bool ended_ = false;
  std::string why_ended_;
  std::map<std::string, dummy_executor> lost_;
};

} // namespace parcae
