#include "actors/manager/injector.hpp"
#include "actors/manager/journal.hpp"
#include "actors/manager/place_check.hpp"
#include "actors/manager/registry_parts.hpp"
#include "actors/manager/status.hpp"
#include "protocols/base/crash_words.hpp"
#include "protocols/base/text.hpp"
#include "protocols/client/pages.hpp"
#include "protocols/model/model_description.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace parcae {

namespace {

constexpr std::size_t max_remembered_crashes = 100;

client_reply encoded(const reply& x) {
  return {encode(x)};
}

client_reply refusal(parcae_error code, std::string_view details) {
  return encoded(error_reply{std::string(to_string(code)), render(code, details)});
}

client_reply refusal(const caf::error& x) {
  if (is_ours(x))
    return refusal(static_cast<parcae_error>(x.code()), details_of(x));
  return refusal(parcae_error::internal, render(x));
}

std::string label_of(const registry_state& s, job_id id) {
  return fmt::format("job {} ({})", id.value, s.queue.jobs().at(id).specification.name);
}

/// What runs before a job that comes after `before` of those that wait.
std::vector<std::string> those_before(const registry_state& s, const std::vector<job_id>& before) {
  std::vector<std::string> result;
  if (const auto running = s.queue.running())
    result.push_back(label_of(s, *running) + ", which runs");
  for (const auto id : before)
    result.push_back(label_of(s, id) + (s.queue.jobs().at(id).why.empty() ? "" : ", if it can run by then"));
  return result;
}

/// Why a job waits.
std::string why_waiting(const registry_state& s, job_id id) {
  if (const auto& why = s.queue.jobs().at(id).why; !why.empty())
    return why;
  auto order = s.queue.waiting();
  order.erase(std::ranges::find(order, id), order.end());
  std::erase_if(order, [&](job_id x) { return !s.queue.jobs().at(x).why.empty(); }); // they are passed over
  const auto before = those_before(s, order);
  if (before.empty())
    return {};
  return "waits for " + before.front() +
         (before.size() > 1 ? fmt::format(", and {} more", before.size() - 1) : std::string());
}

/// The one that runs, else the one that ran last, else 0.
job_id latest_job(const registry_state& s) {
  const auto last = [](const auto& all) { return all.empty() ? job_id{} : all.rbegin()->first; };
  return s.queue.running().value_or(std::max(last(s.pictures), last(s.recovered)));
}

client_reply status_with(registry_pointer self, const status_request& wanted, const job_picture& of_running) {
  auto& s = self->state;
  auto now = self->clock().now();
  status_reply result;
  result.manager_life = s.config.manager_life;
  result.now_us = microseconds_of(now);
  result.wall_us = wall_clock_us();
  if (s.config.own_warning)
    result.warning = s.config.own_warning();
  for (const auto& [who, record] : s.table.records()) {
    result.instances.push_back(status_of(record, now));
    if (const auto member = s.members.find(who); member != s.members.end())
      result.instances.back().slots_needed = static_cast<std::uint32_t>(member->second.needed.size());
  }
  s.news.add_to(result, wanted);
  result.market = s.market;
  const auto detailed = wanted.job != 0 ? job_id{wanted.job} : latest_job(s);
  for (const auto& [id, job] : s.queue.jobs()) {
    if (wanted.job != 0 && wanted.job != id.value)
      continue;
    auto details = wanted;
    if (id != detailed)
      details.changes_from = details.events_from = details.decisions_from = details.losses_from = UINT64_MAX;
    auto known = s.pictures.find(id);
    const auto before = s.recovered.find(id);
    result.jobs.push_back(before != s.recovered.end() ? part_of(before->second, details)
                                                      : status_of(id, job,
                                                                  s.queue.running() == id     ? of_running
                                                                  : known != s.pictures.end() ? known->second
                                                                                              : job_picture{},
                                                                  details));
    result.jobs.back().detailed = id == detailed;
    if (job.state == job_state::queued)
      result.jobs.back().problem = why_waiting(s, id);
    else if (s.queue.running() == id && of_running.view) {
      const auto& view = *of_running.view;
      auto& shown = result.jobs.back();
      shown.idle = idle_reason(job.specification, shown, view.unused, result.instances);
      shown.not_on_disk = why_not_on_disk(job.specification, view, now);
    }
  }
  return {page_of(std::move(result), wanted)};
}

std::string problem_with(const job_specification& job, std::int32_t priority) {
  if (priority < -max_priority || priority > max_priority)
    return fmt::format("the priority is {}, must be from {} to {}", priority, -max_priority, max_priority);
  auto problem = problem_of(job);
  return problem.empty() ? model_problem_of(job) : problem;
}

/// The job goes into the journal, if there is one; answers once it is durable.
caf::result<client_reply> keep_and_answer(registry_pointer self, job_id job, reply answer) {
  auto& s = self->state;
  client_reply result{encode(answer)};
  if (!s.config.journal)
    return result;
  auto promise = self->make_response_promise<client_reply>();
  self->request(s.config.journal, journal_limit, entries_of(s, job))
      .then([promise, result]() mutable { promise.deliver(result); },
            [promise](const caf::error& e) mutable { promise.deliver(e); });
  return promise;
}

/// A worker says, in its last words, that a signal ended it. A job that does that to one after the other fails; what it
/// was told while another ran is not its fault.
void count_crash(registry_pointer self, const report_request& x) {
  auto& s = self->state;
  if (!s.manager || !is_crash(x.what) || (x.job != 0 && job_id{x.job} != s.queue.running()))
    return;
  self->request(s.manager, view_limit, view_atom_v)
      .then(
          [=, job = *s.queue.running()](const job_picture& picture) {
            auto& s = self->state;
            if (s.queue.running() != job)
              return;
            s.crashes.push_back({x.instance, x.what, picture.view->steps_done});
            if (s.crashes.size() > max_remembered_crashes)
              s.crashes.erase(s.crashes.begin());
            if (const auto why = verdict_on(s.crashes); !why.empty())
              self->send(s.manager, job_event{cancel_requested{why}});
          },
          [](const caf::error&) {}); // the job is ending
}

struct request_server {
  registry_pointer self;
  const requester& by;

  using answer = caf::result<client_reply>;

  answer operator()(const submit_request& x) const {
    if (const auto problem = problem_with(x.job, x.priority); !problem.empty())
      return refusal(parcae_error::malformed_request, problem);
    if (self->state.end_at)
      return refusal(parcae_error::unreachable_manager, "it is about to end");
    if (self->state.queue.full())
      return refusal(parcae_error::too_many_jobs, "cancel some of those that wait, or submit later");
    auto id = self->state.queue.submit(x.job, x.priority, by.name, wall_clock_us() / 1000);
    auto answer = keep_and_answer(self, id, submitted_reply{id.value, self->state.config.manager_life});
    start_next_job(self);
    return answer;
  }

  answer operator()(const check_request& x) const {
    if (const auto problem = problem_with(x.job, x.priority); !problem.empty())
      return refusal(parcae_error::malformed_request, problem);
    const auto& s = self->state;
    return answer_with_words(self, x.job,
                             {obstacle_to(x.job, offer_of(s)), those_before(s, s.queue.waiting(x.priority)), {}, {}});
  }

  answer operator()(const status_request& x) const {
    auto& s = self->state;
    if (x.job != 0 && !s.queue.jobs().contains(job_id{x.job}))
      return refusal(parcae_error::unknown_job, std::to_string(x.job) + "; `parcae status` lists them");
    if (!s.manager)
      return status_with(self, x, {});
    auto promise = self->make_response_promise<client_reply>();
    auto job = *s.queue.running();
    self->request(s.manager, view_limit, view_atom_v)
        .then([self = self, x,
               promise](const job_picture& picture) mutable { promise.deliver(status_with(self, x, picture)); },
              [self = self, x, promise, job](const caf::error&) mutable {
                // The job ended while it was asked: its last picture is, or soon will be, here.
                auto& pictures = self->state.pictures;
                auto known = pictures.find(job);
                promise.deliver(status_with(self, x, known != pictures.end() ? known->second : job_picture{}));
              });
    return promise;
  }

  answer operator()(const losses_request& x) const {
    auto& s = self->state;
    const job_id id{x.job};
    if (!s.queue.jobs().contains(id))
      return refusal(parcae_error::unknown_job, std::to_string(x.job) + "; `parcae status` lists them");
    const auto block_of = [x, samples = s.queue.jobs().at(id).specification.global_batch](const loss_record& known) {
      auto [every, block] = x.points > 0 ? known.thinned(x.from, x.points) : std::pair(1ul, known.part(x.from));
      block.samples = samples;
      losses_reply result{every, block.all.empty() ? std::vector<char>() : encode(block)};
      if (x.points > 0)
        for (const auto& [step, loss] : known.evaluations(x.from, x.points))
          result.validation_losses.push_back({step + 1, loss});
      return encoded(result);
    };
    const auto of_ended = [block_of, id](const registry_state& s) {
      const auto known = s.losses.find(id);
      return block_of(known == s.losses.end() ? loss_record() : known->second);
    };
    if (!s.manager || s.queue.running() != id)
      return of_ended(s);
    auto promise = self->make_response_promise<client_reply>();
    self->request(s.manager, view_limit, view_atom_v)
        .then([promise, block_of](const job_picture& x) mutable { promise.deliver(block_of(x.view->record)); },
              [self = self, promise, of_ended](const caf::error&) mutable { // it ended meanwhile
                promise.deliver(of_ended(self->state));
              });
    return promise;
  }

  answer operator()(const preempt_request& x) const {
    if (!by.may_all)
      return refusal(parcae_error::not_permitted,
                     "instances are not " + by.name + "'s: who preempts them needs an operator's certificate");
    auto& s = self->state;
    preempt_order order{x, {}};
    for (const auto& [who, member] : s.members) {
      const auto& record = *s.table.find(who);
      order.living.push_back({who.first, who.second, record.facts.role == role::worker,
                              record.state == instance_state::leaving, member.handle});
    }
    auto promise = self->make_response_promise<client_reply>();
    self->request(s.injector, view_limit, order)
        .then(
            [self = self, promise, notice_ms = x.notice_ms](const preempt_outcome& done) mutable {
              if (notice_ms == 0) // else the notice is news
                for (const auto& name : done.names)
                  self->state.news.note(self->clock().now(), severity::warning,
                                        "instance " + name + " is preempted by command, without notice");
              promise.deliver(encoded(preempted_reply{done.names}));
            },
            [promise](const caf::error& e) mutable { promise.deliver(refusal(e)); });
    return promise;
  }

  answer operator()(const cancel_request& x) const {
    auto& s = self->state;
    job_id id{x.job};
    if (!s.queue.jobs().contains(id))
      return refusal(parcae_error::unknown_job, std::to_string(x.job) + "; `parcae status` lists them");
    if (const auto& owner = s.queue.jobs().at(id).owner; !by.may_all && (owner.empty() || owner != by.name))
      return refusal(parcae_error::not_permitted,
                     fmt::format("job {} is {}, not {}'s: its owner can cancel it, or an operator", x.job,
                                 owner.empty() ? "nobody's" : owner + "'s", by.name));
    if (!s.queue.cancel(id))
      return refusal(parcae_error::job_over, "job " + std::to_string(x.job));
    auto answer = keep_and_answer(self, id, cancelled_reply{x.job});
    if (s.queue.running() == id)
      self->send(s.manager, job_event{cancel_requested{}});
    else
      start_next_job(self);
    return answer;
  }

  answer operator()(const checkpoint_request& x) const {
    auto& s = self->state;
    job_id id{x.job};
    if (!s.queue.jobs().contains(id))
      return refusal(parcae_error::unknown_job, std::to_string(x.job) + "; `parcae status` lists them");
    if (s.queue.running() == id)
      self->send(s.manager, job_event{checkpoint_wanted{}});
    return encoded(checkpointing_reply{x.job});
  }

  answer operator()(const trace_request& x) const {
    auto& s = self->state;
    if (!s.queue.jobs().contains(job_id{x.job}))
      return refusal(parcae_error::unknown_job, std::to_string(x.job) + "; `parcae status` lists them");
    if (s.queue.running() != job_id{x.job})
      return refusal(parcae_error::malformed_request,
                     fmt::format("job {} does not train, so there are no steps to trace", x.job));
    auto promise = self->make_response_promise<client_reply>();
    self->request(s.manager, view_limit, x)
        .then([promise](const trace_reply& y) mutable { promise.deliver(encoded(y)); },
              [promise](const caf::error& e) mutable { promise.deliver(refusal(e)); });
    return promise;
  }

  answer operator()(const report_request& x) const {
    auto& s = self->state;
    if (const auto left_out = s.limits.failures.admit(self->clock().now()))
      spdlog::warn("instance {} {}: {}{}", x.instance, x.ended ? "failed" : "reports", x.what, *left_out);
    const job_id named{x.job};
    const auto* ended = x.ended ? s.table.tell_end(x.instance) : nullptr;
    const auto is_own = [&](const auto& member) {
      return member.first.first == x.instance && member.second.is_of(by.node);
    };
    s.news.fail(self->clock().now(), s.queue.jobs().contains(named) ? named : latest_job(s), x,
                x.ended ? ended != nullptr : std::ranges::any_of(s.members, is_own));
    if (ended && ended->facts.role == role::worker)
      count_crash(self, x);
    return encoded(reported_reply{});
  }
};

} // namespace

journal_entries entries_of(registry_state& s, job_id job) {
  journal_entries result;
  result.all.push_back(entry_of(job, record_of(s.queue.jobs().at(job))));
  s.kept.insert(job);
  std::erase_if(s.kept, [&](job_id id) {
    if (s.queue.jobs().contains(id))
      return false;
    for (auto& x : erased(id))
      result.all.push_back(std::move(x));
    s.losses.erase(id);
    s.recovered.erase(id);
    return true;
  });
  return result;
}

void keep(registry_pointer self, job_id job) {
  if (auto& s = self->state; s.config.journal)
    self->send(s.config.journal, entries_of(s, job));
}

fleet_offer offer_of(const registry_state& s) {
  std::vector<std::pair<std::uint64_t, fleet_offer::worker>> in_order;
  fleet_offer result;
  for (const auto& [who, member] : s.members) {
    const auto* record = s.table.find(who);
    if (!record || record->state != instance_state::alive || !may_train(s, record->facts))
      continue;
    const auto& x = record->facts;
    if (x.role == role::keeper)
      ++result.keepers;
    else if (x.role == role::worker)
      in_order.push_back({member.order, {x.processor, x.slots, x.memory}});
  }
  std::ranges::sort(in_order, {}, [](const auto& x) { return x.first; });
  for (auto& [order, worker] : in_order)
    result.workers.push_back(std::move(worker));
  return result;
}

caf::result<client_reply> serve(registry_pointer self, const requester& who, const client_request& x) {
  try {
    return std::visit(request_server{self, who}, decode_request(x.bytes));
  } catch (const std::runtime_error& e) {
    return refusal(parcae_error::malformed_request, e.what());
  }
}

} // namespace parcae
