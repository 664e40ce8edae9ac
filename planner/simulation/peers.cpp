#include "planner/simulation/peers.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

namespace parcae {

namespace {

constexpr std::uint32_t pipeline_nodes = 12; // stages, for the number of pipelines and Bamboo's neighbours
constexpr double bamboo_slowdown = 1.5;      // of steps while a neighbour stands in
constexpr double bamboo_risk = 0.05;         // share of nodes without a stand-in above which it rebalances

enum class event_kind : std::uint8_t { added, removed, ready, regrouped, rebalanced, step };

// At equal times in order of kind, then as they were made.
struct event {
  std::uint64_t ms;
  event_kind kind;
  std::uint64_t order;
  std::uint32_t subject; // a node; for steps the group's number; for the end of a regrouping the regrouping's

  friend bool operator>(const event& a, const event& b) {
    return std::tie(a.ms, a.kind, a.order) > std::tie(b.ms, b.kind, b.order);
  }
};

struct node {
  bool ready = false;
  bool running = false;
  std::vector<std::uint32_t> places; // pipeline · pipeline_nodes + stage; two after standing in
};

class replay {
public:
  replay(peer_kind kind, const peer_model& model, const peer_system& system, std::span<const trace_event> trace,
         const peer_rules& rules) :
      kind_(kind),
      samples_per_step_(model.global_batch), system_(system), rules_(rules) {
    std::map<std::string, std::uint32_t> numbers;
    std::uint32_t added = 0;
    for (const auto& x : trace) {
      if (x.added)
        numbers[x.node] = added++; // a name that comes back is another node
      push(x.ms, x.added ? event_kind::added : event_kind::removed, numbers.at(x.node));
    }
    end_ms_ = trace.empty() ? 0 : trace.back().ms;
    takes_.regrouping_ms = ms(kind == peer_kind::varuna   ? system.restart_s - system.checkpoint_s
                              : kind == peer_kind::bamboo ? system.rendezvous_s
                                                          : system.reconfiguration_s);
    takes_.rebalancing_ms = ms(system.restart_s);
    takes_.checkpoint_ms = ms(system.checkpoint_s);
  }

  peer_outcome run() {
    while (!events_.empty() && events_.top().ms < end_ms_) {
      const auto x = events_.top();
      events_.pop();
      now_ = x.ms;
      handle(x);
    }
    if (!result_.progress.empty() && last_step_ms_ > *first_start_ms_)
      result_.samples_per_s = 1000 * result_.samples / static_cast<double>(last_step_ms_ - *first_start_ms_);
    return std::move(result_);
  }

private:
  enum class status : std::uint8_t { stopped, regrouping, running };

  struct checkpoint {
    std::uint64_t done_ms;
    double samples;
  };

  // Since a neighbour stands in for a lost node.
  struct stand_in {
    std::uint64_t steps, since_ms;
    bool charged;
  };

  static std::uint64_t ms(double seconds) { return static_cast<std::uint64_t>(std::max(0.0, 1000 * seconds)); }

  void push(std::uint64_t at, event_kind kind, std::uint32_t subject) { events_.push({at, kind, made_++, subject}); }

  void handle(const event& x) {
    switch (x.kind) {
    case event_kind::added:
      nodes_[x.subject];
      push(now_ + peer_node_start_ms, event_kind::ready, x.subject);
      break;
    case event_kind::removed:
      remove(x.subject);
      break;
    case event_kind::ready:
      if (const auto found = nodes_.find(x.subject); found != nodes_.end()) {
        found->second.ready = true;
        if (status_ == status::stopped)
          regroup(event_kind::regrouped);
        else if (status_ == status::regrouping)
          group_.push_back(x.subject);
        else
          ++waiting_;
      }
      break;
    case event_kind::regrouped:
    case event_kind::rebalanced:
      if (rules_.overlapping_regroupings || x.subject == result_.regroupings)
        form_group(x.kind);
      break;
    case event_kind::step:
      if (x.subject == group_number_ && (status_ == status::running || rules_.steps_while_regrouping))
        end_step();
      break;
    }
  }

  void remove(std::uint32_t who) {
    const auto lost = nodes_.at(who);
    nodes_.erase(who);
    if (kind_ == peer_kind::bamboo) {
      if (lost.running && !stand_in_for(lost))
        regroup(event_kind::regrouped);
      else if ((lost.running || rules_.idle_nodes_slow) && status_ == status::running && !stand_in_) {
        stand_in_ = {steps_, now_, false};
        step_ms_ = static_cast<std::uint64_t>(static_cast<double>(step_ms_) * bamboo_slowdown);
      }
      return;
    }
    checkpoint_next_ = true;
    if (kind_ == peer_kind::varuna && rules_.falls_back) {
      while (!checkpoints_.empty() && checkpoints_.back().done_ms > now_)
        checkpoints_.pop_back();
      report(checkpoints_.empty() ? 0 : checkpoints_.back().samples);
    }
    regroup(event_kind::regrouped);
  }

  // The node before the lost one in its pipeline takes its place, unless it stands in for another already.
  bool stand_in_for(const node& lost) {
    if (lost.places.size() > 1)
      return false;
    const auto place = lost.places.front(), stage = place % pipeline_nodes;
    const auto before = stage == 0 ? place + pipeline_nodes - 1 : place - 1;
    for (auto& [who, x] : nodes_)
      if (std::find(x.places.begin(), x.places.end(), before) != x.places.end()) {
        if (x.places.size() > 1)
          return false;
        x.places.push_back(place);
        return true;
      }
    return true;
  }

  void gather() {
    group_.clear();
    for (const auto& [who, x] : nodes_)
      if (x.ready)
        group_.push_back(who);
  }

  void regroup(event_kind kind) {
    status_ = status::regrouping;
    gather();
    push(now_ + (kind == event_kind::regrouped ? takes_.regrouping_ms : takes_.rebalancing_ms), kind,
         ++result_.regroupings);
  }

  void form_group(event_kind kind) {
    if (std::any_of(group_.begin(), group_.end(), [&](auto who) { return !nodes_.contains(who); })) {
      regroup(kind); // one left meanwhile
      return;
    }
    pipelines_ = static_cast<std::uint32_t>(group_.size()) / pipeline_nodes;
    waiting_ = 0;
    for (std::uint32_t i = 0; i < group_.size(); ++i) {
      auto& x = nodes_.at(group_[i]);
      x.running = i < pipelines_ * pipeline_nodes;
      x.places.clear();
      if (x.running)
        x.places.push_back(i);
      else
        ++waiting_;
    }
    group_.clear();
    stand_in_.reset();
    ++group_number_;
    const auto ready = std::count_if(nodes_.begin(), nodes_.end(), [](const auto& x) { return x.second.ready; });
    const double rate = pipelines_ > 0 ? peer_throughput(system_, static_cast<std::uint32_t>(ready)) : 0;
    status_ = rate > 0 ? status::running : status::stopped;
    if (status_ == status::stopped)
      return;
    step_ms_ = std::max<std::uint64_t>(1, ms(samples_per_step_ / rate));
    if (!first_start_ms_)
      first_start_ms_ = now_;
    push(now_ + step_ms_, event_kind::step, group_number_);
  }

  // Progress is straight between its points: equal steps make one line.
  void report(double samples) {
    result_.samples = samples;
    auto& line = result_.progress;
    const peer_progress x{static_cast<double>(now_) / 1000, samples};
    const auto n = line.size();
    if (n > 1 && (x.samples - line[n - 1].samples) * (line[n - 1].seconds - line[n - 2].seconds) ==
                     (line[n - 1].samples - line[n - 2].samples) * (x.seconds - line[n - 1].seconds))
      line.back() = x;
    else
      line.push_back(x);
  }

  void end_step() {
    if (stand_in_ && !stand_in_->charged && stand_in_->steps == steps_) {
      // What the step still had to do when the node was lost took longer.
      stand_in_->charged = true;
      push(now_ + static_cast<std::uint64_t>(static_cast<double>(now_ - stand_in_->since_ms) * (bamboo_slowdown - 1)),
           event_kind::step, group_number_);
      return;
    }
    ++steps_;
    last_step_ms_ = now_;
    report(result_.samples + samples_per_step_);
    auto next_ms = now_;
    const auto every = system_.checkpoint_every_steps;
    if (kind_ == peer_kind::varuna && (checkpoint_next_ || (every > 0 && steps_ % every == 0))) {
      checkpoint_next_ = false;
      next_ms += takes_.checkpoint_ms;
      checkpoints_.push_back({next_ms, result_.samples});
    }
    if (kind_ == peer_kind::bamboo && rebalances())
      regroup(event_kind::rebalanced);
    else
      push(next_ms + step_ms_, event_kind::step, group_number_);
  }

  bool rebalances() const {
    const auto doubled = static_cast<std::uint32_t>(
        std::count_if(nodes_.begin(), nodes_.end(), [](const auto& x) { return x.second.places.size() > 1; }));
    const auto single = pipelines_ * pipeline_nodes - doubled;
    return (doubled > 0 && (waiting_ >= doubled || 2.0 * doubled > bamboo_risk * single)) ||
           (single + waiting_) / pipeline_nodes > pipelines_;
  }

  const peer_kind kind_;
  const double samples_per_step_;
  const peer_system& system_;
  const peer_rules rules_;
  std::uint64_t end_ms_ = 0;
  struct {
    std::uint64_t regrouping_ms = 0, rebalancing_ms = 0, checkpoint_ms = 0;
  } takes_;
  std::priority_queue<event, std::vector<event>, std::greater<>> events_;
  std::uint64_t made_ = 0;
  std::uint64_t now_ = 0;
  status status_ = status::stopped;
  std::map<std::uint32_t, node> nodes_;
  std::vector<std::uint32_t> group_; // who takes part in the regrouping under way
  std::uint32_t group_number_ = 0;   // steps of another are void
  std::uint32_t pipelines_ = 0;
  std::uint32_t waiting_ = 0; // ready nodes without a place
  std::uint64_t step_ms_ = 0;
  std::uint64_t steps_ = 0;
  std::optional<stand_in> stand_in_;
  bool checkpoint_next_ = false;
  std::vector<checkpoint> checkpoints_;
  std::optional<std::uint64_t> first_start_ms_;
  std::uint64_t last_step_ms_ = 0;
  peer_outcome result_;
};

} // namespace

BOOST_DESCRIBE_ENUM(peer_kind, varuna, bamboo, oobleck)

std::string to_string(peer_kind kind) {
  return std::string(enum_name(kind));
}

std::optional<peer_kind> parse_peer_kind(std::string_view text) {
  return parse_enum<peer_kind>(text);
}

peer_rules peer_rules::published(const std::string& model) {
  return {true, true, model == "gpt3-2.7b" || model == "gpt3-6.7b", true};
}

double peer_throughput(const peer_system& system, std::uint32_t nodes) {
  const auto& table = system.samples_per_s;
  if (nodes < pipeline_nodes || table.empty())
    return 0;
  const auto found = table.lower_bound(nodes);
  return found == table.end() ? table.rbegin()->second : found->second;
}

std::vector<peer_progress> ideal_progress(const peer_model& model, const std::vector<trace_event>& trace) {
  const auto history = intervals_of(delayed_additions(trace, peer_node_start_ms));
  const auto end_s = static_cast<double>(trace.back().ms) / 1000;
  std::vector<peer_progress> result{{0, 0}};
  for (std::size_t i = 0; i < history.size() && history[i].seconds < end_s; ++i) {
    double most = 0;
    for (const auto& [name, system] : model.systems)
      most = std::max(most, peer_throughput(system, history[i].available));
    const auto next_s = i + 1 < history.size() ? std::min(history[i + 1].seconds, end_s) : end_s;
    result.push_back({next_s, result.back().samples + most * (next_s - history[i].seconds)});
  }
  return result;
}

double samples_at(std::span<const peer_progress> progress, double seconds) {
  const auto next = std::ranges::lower_bound(progress, seconds, {}, &peer_progress::seconds);
  if (next == progress.begin() || next == progress.end())
    return next == progress.end() ? progress.back().samples : next->samples;
  const auto& before = *(next - 1);
  return before.samples +
         (next->samples - before.samples) * (seconds - before.seconds) / (next->seconds - before.seconds);
}

peer_outcome replay_peer(peer_kind kind, const peer_model& model, std::span<const trace_event> trace,
                         const peer_rules& rules) {
  return replay(kind, model, model.systems.at(to_string(kind)), trace, rules).run();
}

} // namespace parcae
