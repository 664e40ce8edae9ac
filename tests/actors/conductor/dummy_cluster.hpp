#pragma once

// The conductor in virtual time against executors that answer at once unless told not to. What is tested with it is
// time and refusal; failure_schedule_test has the real executors.

#include "actors/conductor/conductor.hpp"
#include "tests/actors/conductor/carried_executors.hpp"
#include "tests/support/names.hpp"

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

/// Training advances when the test says so.
class dummy_cluster {
public:
  explicit dummy_cluster(std::uint32_t layers = 4, std::uint64_t steps = 1000, std::uint64_t checkpoint_every = 0,
                         const resume_point& resume = {}, const conductor_options& options = {},
                         std::uint64_t layer_bytes = 1000) :
      dummy_cluster(
          layers,
          [&](job_specification& job) {
            job.steps = steps;
            job.checkpoint_every = checkpoint_every;
            job.resume = resume;
          },
          options, layer_bytes) {}

  dummy_cluster(std::uint32_t layers, const std::function<void(job_specification&)>& describe,
                const conductor_options& options = {}, std::uint64_t layer_bytes = 1000) :
      options_(options),
      layer_bytes_(layer_bytes) {
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
        event(slot_joined{it->second.where,
                          it->second.keeper,
                          {},
                          {},
                          it->second.gateway ? std::optional("http://" + name) : std::nullopt});
  }

  /// In an order that is the same in each run.
  void restart_manager() { restart_manager(order_); }

  participant add(const std::string& name, bool keeper = false, const machine_facts& machine = {}) {
    participant p{{name, {++lives_}, 0}, "127.0.0.1", 1};
    slots_[name] = {p, keeper, {}};
    all_.add(p.slot, keeper);
    event(slot_joined{p, keeper, {}, machine});
    return p;
  }

  /// A job that serves tells it who does.
  void add_gateway(const std::string& name) {
    participant p{{name, {++lives_}, 0}, "127.0.0.1", 1};
    slots_[name] = {p, false, {}, true};
    event(slot_joined{p, false, {}, {}, "http://" + name});
  }

  /// Workers, until the conductor has done what it does at once.
  void join(const std::vector<std::string>& workers) {
    for (const auto& name : workers)
      add(name);
    advance(20ms);
  }

  void lose(const std::string& name) {
    const auto slot = slots_.at(name).where.slot;
    if (!slots_.at(name).gateway)
      all_.lose(slot, is_dead());
    lost_[name] = slots_.at(name);
    slots_.erase(name);
    event(slot_lost{slot, "test"});
  }

  /// The life that was lost last joins again, with what it holds.
  void come_back(const std::string& name) {
    const auto& back = slots_[name] = lost_.at(name);
    if (back.gateway)
      return event(slot_joined{back.where, false, {}, {}, "http://" + name});
    all_.come_back(back.where.slot);
    event(slot_joined{back.where, back.keeper});
  }

  /// It has a new connection.
  void reconnect(const std::string& name) { event(slot_returned{slot(name)}); }

  /// No event is handled for so long.
  void stand_still(milliseconds x) { now_ += x; }

  time_point now() const { return now_; }
  carried_executors& all() { return all_; }
  conductor& machine() { return *conductor_; }
  const std::string& why_ended() const { return why_ended_; }

  void notice(const std::string& name, milliseconds left) { event(slot_leaving{slot(name), now_ + left}); }

  /// Healthy steps of the running generation on all its ranks.
  void step(int times = 1) {
    for (int i = 0; i < times; ++i)
      at_once([&] { all_.step(loss); });
  }

  /// All ranks of a job that serves say that they are there.
  void serve() {
    at_once([&] { all_.serve(); });
  }

  /// All ranks have the gradients of a step, some have applied it when communication ends. False if nothing runs.
  bool half_step(std::mt19937_64& random) {
    bool result = false;
    at_once([&] { result = all_.half_step([&] { return random() % 2 == 1; }); });
    return result;
  }

  /// The same; the first so many, by name, have applied it.
  void half_step(int applied) {
    at_once([&] { all_.half_step([&] { return applied-- > 0; }); });
  }

  void advance(milliseconds by) {
    const auto until = now_ + by;
    for (auto at = next(); at && *at <= until; at = next()) {
      now_ = std::max(now_, *at);
      event(tick{});
    }
    now_ = until;
  }

  /// So often some time, and a step.
  void advance_and_step(int times, milliseconds by) {
    for (int i = 0; i < times; ++i) {
      advance(by);
      step();
    }
  }

  void event(const conductor_event& x) {
    if (is_dead())
      return;
    pending_.push_back(x);
    handle_all();
  }

  slot_id slot(const std::string& name) const { return slots_.at(name).where.slot; }
  /// Valid until the next event.
  const job_view& view() const {
    if (!view_)
      view_ = conductor_->view();
    return *view_;
  }
  /// Pipelines that train; 0: it does not run.
  std::uint32_t running() const { return view().now == phase::running ? view().grid->width : 0; }
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& log() const { return log_; }
  bool ended() const { return ended_; }
  const durable_state& durable() const { return durable_; } ///< what is in the journal, on disk
  bool writes(const std::string& keeper) const { return conductor_->writes(slot(keeper)); }

  job_past past;                ///< what the next manager finds of it
  std::set<std::string> silent; ///< instances that answer nothing but LOAD
  bool progress_is_lost = false;
  std::function<report(const std::string& name, const report&)> mend; ///< changes an answer
  std::function<bool(const report&)> hold_back;                       ///< true: an answer that is not given
  std::vector<report> held_back;
  std::function<bool(const std::string& name, const command&)> drop; ///< true: a command that does not arrive
  situation asked;                                                   ///< with the last question to the planner
  std::uint32_t width = 0, depth = 1;                                ///< the planner's choice; width 0: as wide as fits
  double samples_per_s = 1;                                          ///< as the planner expects of it
  double loss = 0;                                                   ///< of every step
  std::uint32_t plans = 0;
  std::uint64_t handled = 0;                                                  ///< events
  bool slow_planner = false;                                                  ///< answers only to answer_plans()
  std::map<std::string, std::map<version, std::vector<std::uint32_t>>> disks; ///< by keeper: layers of checkpoints
  std::string disk_problem;                         ///< why keepers can neither write nor read all
  bool store_is_away = false;                       ///< what was written cannot be reached
  std::vector<std::pair<std::size_t, phase>> taken; ///< rows of the transition table, and from where
  bool kept_silent = false;                         ///< keepers answer neither CONFIRM nor CHECKPOINT

  /// The planner answers what it was asked while it was slow, with the slots there were then.
  void answer_plans() {
    for (const auto& x : std::exchange(unanswered_, {}))
      event(x);
  }

  /// Answers of these kinds.
  template <class... Reports>
  void keep_back() {
    hold_back = [](const report& x) { return (std::holds_alternative<Reports>(x) || ...); };
  }

  /// One keeper, k, and one worker, a, which trains.
  void add_keeper_and_worker() {
    add("k", true);
    join({"a"});
  }

  /// So many steps, the last of which the keeper has then.
  void train(int steps) {
    step(steps);
    snapshot("k");
  }

  /// The keeper now holds what the ranks hold, and says so.
  void snapshot(const std::string& keeper) {
    inventory all;
    for (const auto& [name, s] : slots_)
      if (!s.keeper)
        std::ranges::copy(held(name), std::back_inserter(all));
    aloud([&] {
      for (const auto& x : all)
        all_.arrive(slot(keeper), x, {.step = x.at.steps - 1});
      all_.caught_up(slot(keeper));
    });
  }

  /// The keeper now holds this and nothing else, and says so.
  void hold(const std::string& keeper, const inventory& held) {
    hold_unsaid(keeper, held);
    aloud([&] { all_.caught_up(slot(keeper)); });
    if (held.empty())
      say(keeper, kept{job_id{1}, {}, {}, {}});
  }

  /// Its word is on its way.
  void hold_unsaid(const std::string& keeper, const inventory& held) { all_.hold(slot(keeper), held); }

  /// What goes to keepers is shown to this function, and arrives by deliver(). Without one it gets lost.
  void on_snapshot(std::function<void(shard_on_its_way)> f) { all_.snapshot_to = std::move(f); }
  void deliver(const shard_on_its_way& x) {
    at_once([&] {
      all_.arrive(x.to, x.what, x.made_by);
      all_.caught_up(x.to);
    });
  }

  inventory held(const std::string& name) const { return all_.held(slot(name)); }
  bool has(const std::string& name) const { return slots_.contains(name); }

  void say(const std::string& name, report what) { event(slot_reported{slot(name), std::move(what)}); }

  const std::vector<command>& told(const std::string& name) { return slots_.at(name).told; }

  /// Of those the ones of this kind.
  template <class Command>
  std::vector<Command> all_told(const std::string& name) {
    std::vector<Command> result;
    for (const auto& x : told(name))
      if (const auto* y = std::get_if<Command>(&x))
        result.push_back(*y);
    return result;
  }

  /// Whether it was told so after the first so many commands, and before the next PREPARE.
  template <class Command>
  bool is_told_before_prepare(const std::string& name, std::size_t after) {
    const auto& all = told(name);
    while (after < all.size() && !std::holds_alternative<prepare>(all[after]))
      if (std::holds_alternative<Command>(all[after++]))
        return true;
    return false;
  }

  /// Steps of the newest version that anybody holds.
  std::uint64_t reached() const {
    std::uint64_t most = 0;
    for (const auto& [name, s] : slots_)
      for (const auto& h : held(name))
        most = std::max(most, h.at.steps);
    return most;
  }

private:
  struct member {
    participant where;
    bool keeper = false;
    std::vector<command> told;
    bool gateway = false;
  };

  void begin() {
    model_facts facts;
    facts.state_bytes.assign(layers_, layer_bytes_);
    facts.costs.assign(layers_, {1, 2, 0.1, 1000, 100});
    facts.cache_bytes.assign(job_.serves() ? layers_ : 0, 100);
    view_.reset();
    conductor_ = conductor::make({job_id{1}, job_, facts, options_, secret_key{{1}}, memory_, past},
                                 [this](std::size_t row, phase from) { taken.emplace_back(row, from); });
    all_.report_to = [this](const slot_id& from, report what) { hear(from, std::move(what)); };
    all_.object = [this](const std::string& what) { errors_.push_back(what); };
    all_.write = [this](const slot_id& keeper, const keeper_effects::write& x) { write(keeper, x); };
    all_.read = [this](const slot_id& keeper, const restore& x) { read(keeper, x); };
  }

  void die() {
    effects_left_.reset();
    conductor_.reset();
    pending_.clear();
  }

  std::optional<time_point> next() const { return is_dead() ? std::nullopt : conductor_->deadline(); }

  /// What is said meanwhile is handled afterwards.
  template <class Function>
  void at_once(Function f) {
    const bool was_busy = std::exchange(busy_, true);
    f();
    busy_ = was_busy;
    handle_all();
  }

  /// As at_once, and nothing of it is held back or changed.
  template <class Function>
  void aloud(Function f) {
    at_once([&] {
      aloud_ = true;
      f();
      aloud_ = false;
    });
  }

  void handle_all() {
    if (std::exchange(busy_, true))
      return;
    for (all_.settle(); !pending_.empty(); all_.settle()) {
      const auto next = pending_.front();
      pending_.pop_front();
      ++handled;
      const auto effects = conductor_->handle(now_, next);
      view_.reset();
      for (const auto& e : effects) {
        if (effects_left_ && (*effects_left_)-- == 0) {
          die();
          break;
        }
        carry_out(e);
      }
    }
    busy_ = false;
  }

  void hear(const slot_id& from, report what) {
    const auto& name = from.instance;
    if (!has(name) || slot(name) != from)
      return;
    if (progress_is_lost && std::holds_alternative<progress>(what))
      return;
    if (!aloud_ && !std::holds_alternative<progress>(what)) {
      if (silent.contains(name) && !std::holds_alternative<loaded>(what))
        return;
      if (kept_silent && std::holds_alternative<kept>(what))
        return;
      if (mend)
        what = mend(name, what);
      if (hold_back && hold_back(what))
        return held_back.push_back(std::move(what));
    }
    event(slot_reported{from, std::move(what)});
  }

  void carry_out(const effect& x) {
    if (const auto* r = std::get_if<request_plan>(&x)) {
      ++plans;
      asked = r->now;
      decision why;
      why.reason = "dummy reason";
      configuration c{width ? width : r->now.slots / depth, depth, {}, samples_per_s, "dummy"};
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
      if (it == slots_.end() || it->second.where.slot != t->to || (drop && drop(it->first, *t->what)))
        return;
      it->second.told.push_back(*t->what);
      if (!it->second.gateway)
        all_.tell(t->to, *t->what);
    }
  }

  void write(const slot_id& keeper, const keeper_effects::write& x) {
    if (kept_silent)
      return;
    checkpointed answer{x.what.job, x.what.at, {}, "/state/" + x.what.name, disk_problem};
    for (const auto& shard : x.shards)
      answer.layers.push_back(shard->layer);
    if (disk_problem.empty()) {
      auto& disk = disks[keeper.instance];
      disk[x.what.at] = answer.layers;
      std::erase_if(disk, [&](const auto& y) {
        return y.first < x.what.at && std::ranges::count(x.what.kept, y.first.steps) == 0;
      });
    }
    hear(keeper, std::move(answer));
  }

  void read(const slot_id& keeper, const restore& x) {
    if (store_is_away)
      return all_.was_read(keeper, {x.job, x.at, false, "the store is away", true});
    const auto& layers = disks[keeper.instance][x.at];
    for (const auto layer : layers)
      all_.arrive(keeper, {layer, x.at}, {});
    all_.was_read(keeper, {x.job, x.at, !disk_problem.empty(), layers.empty() ? "no folder" : disk_problem});
  }

  carried_executors all_;
  mutable std::optional<job_view> view_; ///< as computed since the last event
  const conductor_options options_;
  const std::uint64_t layer_bytes_;
  job_specification job_;
  std::uint32_t layers_;
  std::unique_ptr<conductor> conductor_; ///< null: the manager is dead
  std::optional<std::uint64_t> effects_left_;
  durable_state memory_, durable_; ///< the journal; and as far as it is on disk
  std::map<std::string, member> slots_, lost_;
  std::deque<conductor_event> pending_;
  bool busy_ = false, aloud_ = false;
  std::mt19937_64 order_{1};
  time_point now_ = time_point{} + 1h;
  std::uint64_t lives_ = 0;
  std::vector<plan_chosen> unanswered_;
  std::vector<std::string> errors_, log_;
  bool ended_ = false;
  std::string why_ended_;
};

} // namespace parcae
