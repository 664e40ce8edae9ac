#include "tests/simulation/worker_double.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace parcae::simulation {

worker_double::worker_double(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                             std::function<void(report)> report_to) :
    data_end(std::move(p), slot),
    around_(around), report_to_(std::move(report_to)) {
  around_.plane.add(*this);
}

worker_double::~worker_double() {
  *alive_ = false;
  if (around_.plane.remove(*this))
    around_.sees.gone(slot);
}

// Things happen on its own threads.
void worker_double::later(nanoseconds delay, void (worker_double::*what)()) {
  around_.time.after(process, delay, [this, what, alive = alive_] {
    if (*alive)
      (this->*what)();
  });
}

void worker_double::say(report x) {
  around_.sees.said(slot, x);
  report_to_(std::move(x));
}

inventory worker_double::held() const {
  inventory result;
  for (const auto& [layer, x] : store_)
    result.push_back({layer, x.at});
  return result;
}

void worker_double::store_changed() {
  around_.sees.holds(slot, held());
}

void worker_double::end(part& x) {
  x.ended = true;
  around_.plane.close(x.what.next, *this);
}

void worker_double::want_snapshot() {
  if (running_)
    current_->next.snapshot = true;
}

void worker_double::submit(command x) {
  if (auto* p = std::get_if<prepare>(&x))
    return begin_preparation(std::move(*p));
  if (const auto* l = std::get_if<load>(&x)) {
    around_.time.after(process, around_.time.chance().between(1ms, 40ms), [this, job = l->job, alive = alive_] {
      if (*alive)
        say(loaded{job, "digest"});
    });
    return;
  }
  if (const auto* a = std::get_if<abort_generation>(&x)) {
    for (auto* each : {current_.get(), next_.get()})
      if (each && each->what.next == a->current)
        end(*each);
    if (is(current_, a->current) && running_)
      interrupted({}, {});
    if (next_ && next_->ended && next_->transfers_at)
      finish_transfer();
  } else if (const auto* s = std::get_if<stop>(&x)) {
    if (is(current_, s->current) && running_) {
      current_->next.stop = true;
      current_->next.snapshot |= s->snapshot;
    }
  } else if (const auto* y = std::get_if<activate>(&x)) {
    if (is(current_, y->next) && running_)
      say(active{y->next});
  }
  queue_.push_back(std::move(x));
  go_on();
}

void worker_double::go_on() {
  if (busy_ || in_step_ || (queue_.empty() && !running_))
    return;
  busy_ = true;
  later(around_.time.chance().between(0ms, 2ms), &worker_double::do_next);
}

void worker_double::do_next() {
  busy_ = false;
  if (in_step_)
    return;
  if (!queue_.empty()) {
    const auto x = std::move(queue_.front());
    queue_.pop_front();
    std::visit([this](const auto& y) { handle(y); }, x);
  } else if (running_) {
    train();
  }
  go_on();
}

// Preparation, beside a running generation

void worker_double::begin_preparation(prepare x) {
  if (is(next_, x.next) && next_->what.job == x.job) {
    if (next_->answer)
      say(*next_->answer);
    return;
  }
  if (std::pair(x.job, x.next) <= newest_)
    return;
  newest_ = {x.job, x.next};
  if (next_) {
    end(*next_);
    if (next_->transfers_at)
      busy_ = false;
  }
  next_ = std::make_unique<part>();
  const auto& all = x.target.participants;
  while (next_->self < all.size() && all[next_->self].slot != slot)
    ++next_->self;
  next_->what = std::move(x);
  around_.plane.connect(next_->what, *this);
  go_on();
}

void worker_double::on_connected(generation g) {
  if (!is(next_, g) || next_->ended || next_->answer)
    return;
  next_->answer = prepared{g, checksum_of(next_->what)};
  say(*next_->answer);
}

void worker_double::on_unreachable(generation g, std::uint32_t peer) {
  if (!is(next_, g) || next_->ended || next_->answer)
    return;
  next_->answer = failed{g, failure::unreachable, peer, "nobody there", {}};
  say(*next_->answer);
}

void worker_double::on_closed(generation g, std::uint32_t peer) {
  for (auto* each : {current_.get(), next_.get()})
    if (each && each->what.next == g && !each->ended)
      each->closed.insert(peer);
  if (is(next_, g) && next_->transfers_at)
    finish_transfer();
  if (is(current_, g) && current_->broken() && in_step_)
    interrupted(failure::communication, "a connection closed");
}

// Transfer

void worker_double::on_shard(generation g, std::uint32_t layer, const layer_state& x) {
  if (!is(next_, g))
    return;
  next_->arrived[layer] = x;
  if (next_->transfers_at)
    finish_transfer();
}

void worker_double::end_superseded(generation by) {
  if (!running_ || !(current_->what.next < by))
    return;
  running_ = false;
  end(*current_);
}

void worker_double::handle(const transfer& x) {
  if (!is(next_, x.next))
    return;
  end_superseded(x.next);
  if (next_->transferred)
    say(*next_->transferred);
  if (!next_->answer || !std::holds_alternative<prepared>(*next_->answer) || next_->ended || next_->transferred)
    return;
  if (std::exchange(stored_, next_->what.job) != next_->what.job)
    store_.clear();
  for (const auto& move : next_->what.moves) {
    if (move.source != next_->self)
      continue;
    const auto known = store_.find(move.layer);
    if (known == store_.end() || known->second.at != x.at) {
      next_->transferred = failed{x.next, failure::refused, 0, "layer is not held at that version", held()};
      around_.sees.object(to_string(slot) + " is to send layer " + std::to_string(move.layer) + " at " +
                          to_string(x.at) + ", which it does not hold");
      end(*next_);
      return say(*next_->transferred);
    }
    around_.plane.move(x.next, move, known->second);
  }
  next_->transfers_at = x.at;
  busy_ = true;
  finish_transfer();
}

// As far as it can.
void worker_double::finish_transfer() {
  auto& g = *next_;
  const auto at = *g.transfers_at;
  const auto done = [&](std::optional<report> answer) {
    g.transfers_at.reset();
    g.transferred = std::move(answer);
    if (g.transferred)
      say(*g.transferred);
    store_changed();
    busy_ = false;
    go_on();
  };
  if (g.ended)
    return done({});
  const auto is_awaited = [&](const auto& x) { return x.destination == g.self && !g.arrived.contains(x.layer); };
  if (std::ranges::any_of(g.what.moves, [&](const auto& x) { return is_awaited(x) && g.closed.contains(x.source); })) {
    around_.plane.close(g.what.next, *this);
    return done(failed{g.what.next, failure::communication, 0, "a connection closed", held()});
  }
  if (std::ranges::any_of(g.what.moves, is_awaited))
    return;
  for (const auto& [layer, x] : std::exchange(g.arrived, {})) {
    around_.sees.object(problem_with_bits(layer, x.at, x.bits));
    store_[layer] = x;
  }
  if (!g.is_rank())
    return done(delivered{g.what.next});
  for (auto layer = g.first(); layer < g.last(); ++layer) {
    const auto known = store_.find(layer);
    if (known != store_.end() && known->second.at == at)
      continue;
    if (at != version{}) {
      around_.sees.object(to_string(slot) + " needs layer " + std::to_string(layer) + " at " + to_string(at) +
                          " and is sent nothing");
      end(g);
      return done(failed{g.what.next, failure::refused, 0, "a layer is neither held nor sent", held()});
    }
    store_[layer] = {at, initial_bits(layer)};
  }
  g.at = at;
  done(ready{g.what.next, at, 0});
}

// Commands

void worker_double::handle(const stop& x) {
  if (!is(current_, x.current) || current_->ended)
    return;
  if (stopped_) {
    report_stopped();
  } else if (running_) {
    current_->next.stop = true;
    current_->next.snapshot |= x.snapshot;
  } else if (failure_) {
    say(*failure_);
  }
}

void worker_double::handle(const activate& x) {
  if (is(current_, x.next)) {
    say(active{x.next});
    if (stopped_)
      report_stopped();
    else if (failure_)
      say(*failure_);
    else if (current_->ended)
      say(failed{x.next, failure::communication, 0, "was told to abort it", held()});
    return;
  }
  if (!is(next_, x.next) || !next_->transferred || !std::holds_alternative<ready>(*next_->transferred) || next_->ended)
    return;
  if (current_)
    end(*current_);
  current_ = std::move(next_);
  stopped_ = false;
  failure_.reset();
  current_->at = x.at;
  current_->next.snapshot = wanted_;
  running_ = true;
  told_at_ = {};
  say(active{x.next});
  if (is_final())
    send_final_state(false);
}

void worker_double::handle(const abort_generation& x) {
  aborted answer{x.current, {}, no_step, {}, {}};
  if (is(next_, x.current)) {
    const auto ending = std::move(next_);
    if (ending->is_rank())
      if (const auto known = store_.find(ending->first()); known != store_.end())
        answer.at = known->second.at;
  } else if (is(current_, x.current)) {
    running_ = false;
    answer.result = current_->result;
    if (!current_->voided) {
      answer.at = current_->at;
      answer.complete = current_->complete;
    }
  }
  answer.held = held();
  say(std::move(answer));
}

void worker_double::handle(const decide& x) {
  if (is(current_, x.current) && !running_) {
    const bool open = current_->complete == x.result.step && current_->at.steps == x.result.step;
    const bool stale = around_.faults.applies_stale_decisions && !current_->voided;
    if (x.result.step != no_step && (open || stale)) {
      apply(x.result);
      committed(x.result);
      send_snapshot(x.result, false);
    } else {
      current_->complete = no_step;
    }
  }
  say(decided{x.current, held()});
}

void worker_double::handle(const release& x) {
  if (x.current < newest_.second)
    return;
  end_superseded(x.current);
  std::erase_if(store_, [&](const auto& entry) { return !std::ranges::binary_search(x.keep, entry.first); });
  store_changed();
  if (current_ && current_->what.next < x.current) {
    end(*current_);
    current_.reset();
  }
  if (is(next_, x.current) && !next_->is_rank()) {
    end(*next_);
    next_.reset();
  }
}

void worker_double::handle(const protect& x) {
  wanted_ |= x.now;
  const bool same = !x.now && feed_.job == x.job && feed_.pass.token == x.pass.token && feed_.keepers == x.keepers;
  feed_ = x;
  if (!same)
    streams_ = std::make_shared<int>();
  if (wanted_ && running_)
    current_->next.snapshot = true;
  if (!current_ || running_ || current_->voided)
    return;
  if (x.whole)
    send_final_state(true);
  else if (!current_->ended && is_final())
    send_final_state(false);
}

void worker_double::handle(const forget& x) {
  if (feed_.job == x.job) {
    feed_ = {};
    streams_.reset();
    wanted_ = false;
  }
  if (current_ && current_->what.job == x.job) {
    running_ = false;
    end(*current_);
    current_.reset();
  }
  if (stored_ == x.job)
    store_.clear();
  if (next_ && next_->what.job == x.job) {
    end(*next_);
    next_.reset();
  }
  store_changed();
}

} // namespace parcae::simulation
