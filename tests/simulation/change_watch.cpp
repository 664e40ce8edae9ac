#include "tests/simulation/change_watch.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

namespace parcae::simulation {

namespace {

constexpr nanoseconds outlasted = 20s; ///< whatever is done to a node is over, or it is lost
constexpr nanoseconds on_its_way = 3s; ///< a message, and what waits for a slow journal

} // namespace

void change_watch::begins_anew() {
  now_ = phase::none;
  next_.reset();
  current_.reset();
  in_vain_ = 0;
}

void change_watch::enter(phase x, nanoseconds limit, time_point now) {
  now_ = x;
  begun_ = now;
  due_ = now + limit;
}

void change_watch::prolong(nanoseconds limit, time_point now) {
  due_ = std::max(due_, now + limit);
}

nanoseconds change_watch::progress_limit() const {
  return job_.options.progress_limit * (1 << std::min(in_vain_, 10));
}

void change_watch::told(const command& what, time_point now) {
  const auto& limits = job_.options;
  if (const auto* p = std::get_if<prepare>(&what)) {
    if (next_ && next_->next == p->next)
      return prolong(limits.request_limit, now);
    next_ = *p;
    enter(phase::preparing, limits.prepare_limit, now);
  } else if (const auto* s = std::get_if<stop>(&what); s && current_ && current_->next == s->current) {
    if (now_ != phase::stopping)
      enter(phase::stopping, progress_limit(), now);
  } else if (const auto* a = std::get_if<activate>(&what); a && next_ && next_->next == a->next) {
    std::uint64_t bytes = 0;
    for (const auto& x : next_->moves)
      bytes += job_.state_bytes(x.layer, x.layer + 1);
    current_ = std::exchange(next_, {});
    active_.clear();
    enter(phase::activating, job_.transfer_limit(bytes), now);
  } else if (const auto* x = std::get_if<abort_generation>(&what)) {
    if (next_ && next_->next == x->current) {
      next_.reset();
      now_ = phase::none;
      if (current_)
        train(now);
    } else if (current_ && current_->next == x->current && job_.specification.serves()) {
      prolong(limits.return_limit + limits.request_limit, now); // perhaps of one pipeline of several
    } else if (current_ && current_->next == x->current) {
      if (now_ == phase::ending)
        return prolong(limits.request_limit, now);
      // An only holder of a stage is given as long as a step may take; and who may be dialling, to come back.
      enter(phase::ending, progress_limit() + limits.return_limit + limits.request_limit, now);
      next_.reset();
      ++in_vain_;
    }
  } else if (std::holds_alternative<protect>(what) || std::holds_alternative<guard>(what)) {
    prolong(limits.request_limit, now); // somebody is back, who is asked again
  } else if (std::holds_alternative<forget>(what)) {
    begins_anew();
  }
}

void change_watch::heard(const slot_id& from, const report& what, time_point now) {
  if (!current_)
    return;
  if (const auto* a = std::get_if<active>(&what); a && a->current == current_->next && now_ == phase::activating) {
    active_.insert(from);
    if (active_.size() == current_->target.ranks())
      train(now);
  } else if (const auto* p = std::get_if<progress>(&what); p && p->current == current_->next) {
    in_vain_ = 0;
    if (now_ == phase::training)
      train(now);
  } else if (const auto* s = std::get_if<served>(&what); s && s->current == current_->next) {
    in_vain_ = 0; // perhaps of one pipeline of several
    if (now_ == phase::training)
      train(now);
  }
}

void change_watch::durable(const durable_state& durable, time_point now) {
  if (!current_)
    return;
  const auto link = std::ranges::find(durable.chain, current_->next, &chain_link::by);
  if (link != durable.chain.end() && link->last == UINT64_MAX)
    return;
  current_.reset();
  if (next_)
    prolong(job_.options.request_limit, now); // ACTIVATE follows, or ABORT
  else
    now_ = phase::none;
}

void change_watch::disturbed(const slot_id& who, time_point now) {
  if (const auto known = there_.find(who); known != there_.end())
    known->second = now;
}

std::string change_watch::problem(time_point now) {
  if (now_ == phase::none || now < due_ + on_its_way)
    return {};
  const auto& plan = about();
  const auto stays = [&](const auto& x) { // the manager knows it, and had to tell it
    const auto known = there_.find(x.slot);
    return known != there_.end() && known->second + outlasted < begun_;
  };
  if (std::ranges::none_of(plan.target.participants, stays))
    return {};
  static constexpr std::array names{"", "prepare", "stop for", "activate", "train", "end"};
  return "it takes longer than it may to " + std::string(names[static_cast<std::size_t>(std::exchange(now_, {}))]) +
         " generation " + std::to_string(plan.next.value);
}

} // namespace parcae::simulation
