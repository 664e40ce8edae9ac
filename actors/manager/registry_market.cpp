#include "actors/manager/registry_parts.hpp"

namespace parcae {

caf::result<market_facts> market_now(registry_pointer self) {
  auto& s = self->state;
  market_facts facts;
  for (const auto& [who, member] : s.members)
    if (const auto& x = *s.table.find(who); x.facts.role == role::worker && !x.facts.pool.empty())
      facts.workers.push_back({who.first, x.facts.pool, x.joined, x.facts.slots, x.state == instance_state::leaving});
  const auto waiting = s.queue.waiting();
  const auto id = s.queue.running() ? s.queue.running() : waiting.empty() ? std::nullopt : std::optional(waiting[0]);
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
          [=](const caf::error& e) mutable { promise.deliver(e); }); // it is ending
  return promise;
}

void give_notice(registry_pointer self, const give_back& x) {
  // At the latest: each is released when nothing of it is needed any more.
  constexpr std::uint64_t notice_ms = 3'600'000;
  for (const auto& name : x.names)
    for (auto& [who, member] : self->state.members)
      if (who.first == name && self->state.table.find(who)->state == instance_state::alive) {
        member.given_back = true;
        leave(self, leaving_notice{who.first, who.second, notice_ms, "it is given back"});
        break;
      }
}

} // namespace parcae
