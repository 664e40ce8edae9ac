#include "actors/manager/registry_parts.hpp"

namespace parcae {

namespace {

constexpr std::size_t max_gone = 10'000; // more than live at once

bool is_rented(const instance_record& x) {
  return x.facts.role == role::worker && !x.facts.pool.empty();
}

rented_worker rented(const instance_record& x) {
  return {.name = x.facts.name,
          .pool = x.facts.pool,
          .joined = x.joined,
          .ages = x.facts.ages,
          .slots = x.facts.slots,
          .leaving = x.state == instance_state::leaving};
}

} // namespace

caf::result<market_facts> market_now(registry_pointer self) {
  auto& s = self->state;
  market_facts facts;
  s.broker = caf::actor_cast<caf::actor_addr>(self->current_sender());
  for (const auto& [who, member] : s.members)
    if (const auto& x = *s.table.find(who); is_rented(x))
      facts.workers.push_back(rented(x));
  const auto waiting = s.queue.waiting();
  const auto id = s.queue.running() ? s.queue.running() : waiting.empty() ? std::nullopt : std::optional(waiting[0]);
  facts.gone = std::exchange(s.gone, {}); // of the same moment as those that live
  if (!id)
    return facts;
  const auto& job = s.queue.jobs().at(*id);
  rented_for wanted{*id, job.specification, job.submitted_ms, {}};
  const auto with = [](market_facts facts, rented_for wanted) {
    facts.job = std::make_shared<const rented_for>(std::move(wanted));
    return facts;
  };
  if (!s.manager)
    return with(std::move(facts), std::move(wanted));
  auto promise = self->make_response_promise<market_facts>();
  self->request(s.manager, view_limit, view_atom_v)
      .then(
          [=](const job_picture& picture) mutable {
            wanted.picture = picture;
            promise.deliver(with(facts, wanted));
          },
          [=](const caf::error& e) mutable { // it is ending
            auto& gone = self->state.gone;
            gone.insert(gone.begin(), facts.gone.begin(), facts.gone.end());
            promise.deliver(e);
          });
  return promise;
}

bool may_train(const registry_state& s, const hello& x) {
  return x.role != role::worker || !s.config.pools_that_wait.contains(x.pool) || s.training.contains(x.pool);
}

void train(registry_pointer self, const train_with& x) {
  auto& s = self->state;
  const auto before = std::exchange(s.training, x.pools);
  std::map<std::uint64_t, instance_table::key> in_order;
  for (const auto& [who, member] : s.members)
    if (const auto& pool = s.table.find(who)->facts.pool;
        s.config.pools_that_wait.contains(pool) && x.pools.contains(pool) && !before.contains(pool))
      in_order.emplace(member.order, who);
  for (const auto& [order, who] : in_order) {
    if (s.table.find(who)->state == instance_state::alive)
      spread_news(self, s.table.find(who)->facts, true, false);
    offer_slots(self, who);
  }
  if (!in_order.empty())
    start_next_job(self);
}

void count_gone(registry_state& s, const instance_record& x, time_point now) {
  if (!is_rented(x) || s.gone.size() >= max_gone)
    return;
  s.gone.push_back(rented(x));
  s.gone.back().ended = now;
}

void give_notice(registry_pointer self, const give_back& x) {
  for (const auto& name : x.names)
    for (auto& [who, member] : self->state.members)
      if (who.first == name && (member.given_back || self->state.table.find(who)->state == instance_state::alive)) {
        member.given_back = true;
        leave(self, leaving_notice{who.first, who.second, x.notice_ms, "it is given back"});
        break;
      }
}

} // namespace parcae
