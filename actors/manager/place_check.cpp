#include "actors/manager/place_check.hpp"

#include "protocols/base/text.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/all.hpp>

#include <memory>
#include <utility>

namespace parcae {

namespace {

// Less than a client waits.
constexpr std::chrono::seconds place_limit{4};

struct open_check {
  checked_reply result;
  caf::typed_response_promise<client_reply> promise;
  int waits_for = 0;

  void answered() {
    if (--waits_for == 0)
      promise.deliver(client_reply{encode(reply{std::move(result)})});
  }
};

std::string list_of(const std::vector<std::string>& x) {
  std::string result;
  for (const auto& part : x)
    result += (result.empty() ? "" : ", ") + part;
  return result;
}

/// The first to have joined of those that stay; none: end().
auto first_of(const registry_state& s, role as) {
  auto result = s.members.end();
  for (auto x = s.members.begin(); x != s.members.end(); ++x)
    if (const auto* record = s.table.find(x->first);
        record && record->state == instance_state::alive && record->facts.role == as && !x->second.away &&
        (result == s.members.end() || x->second.order < result->second.order))
      result = x;
  return result;
}

void ask_one(registry_pointer self, role as, const place_question& question, const std::string& places,
             const std::shared_ptr<open_check>& check) {
  const auto& s = self->state;
  const auto who = first_of(s, as);
  if (who == s.members.end()) {
    check->result.unknown.push_back("there is no " + to_string(as) + " to look for " + places);
    return;
  }
  ++check->waits_for;
  const auto name = to_string(as) + " " + who->first.first;
  self->request(who->second.handle, place_limit, question)
      .then(
          [=](const place_answer& x) {
            for (const auto& problem : x.problems)
              check->result.problems.push_back(name + ": " + problem);
            for (const auto& unknown : x.unknown)
              check->result.unknown.push_back(name + ": " + unknown);
            check->answered();
          },
          [=](const caf::error&) {
            check->result.unknown.push_back(name + " did not say in time whether it has " + places);
            check->answered();
          });
}

void ask_broker(registry_pointer self, const job_specification& job, const std::shared_ptr<open_check>& check) {
  const auto broker = caf::actor_cast<broker_actor>(self->state.broker);
  if (!broker) {
    check->result.unknown.push_back("budget: whether it holds, as this manager rents nothing (it has no --market): the "
                                    "job takes what comes");
    return;
  }
  ++check->waits_for;
  self->request(broker, place_limit, budget_question{std::make_shared<const job_specification>(job)})
      .then(
          [=](const budget_answer& x) {
            auto& to = check->result;
            to.problems.insert(to.problems.end(), x.words.problems.begin(), x.words.problems.end());
            to.unknown.insert(to.unknown.end(), x.words.unknown.begin(), x.words.unknown.end());
            check->answered();
          },
          [=](const caf::error&) {
            check->result.unknown.push_back("budget: the broker did not say in time whether it can hold");
            check->answered();
          });
}

} // namespace

place_question places_of(const job_specification& job) {
  place_question result;
  const auto add = [&](const std::string& x) {
    if (!x.empty())
      result.read.push_back(x);
  };
  if (job.data.kind != "synthetic")
    add(job.data.path);
  for (const auto& x : job.data.source)
    add(x.path);
  if (job.model.is_own())
    add(job.model.path);
  add(job.model.weights);
  result.write = job.checkpoint.to;
  result.endpoint = job.checkpoint.endpoint;
  result.region = job.checkpoint.region;
  return result;
}

std::string tokenizer_of(const job_specification& job) {
  const auto& x = job.serve.tokenizer;
  return !job.serves() || x == "auto" || x == "bytes" || x == "ids" ? std::string() : x;
}

caf::result<client_reply> answer_with_words(registry_pointer self, const job_specification& job, checked_reply so_far) {
  const auto question = places_of(job);
  const auto check = std::make_shared<open_check>();
  check->result = std::move(so_far);
  check->waits_for = 1; // for this function's end
  check->promise = self->make_response_promise<client_reply>();
  if (!question.read.empty())
    ask_one(self, role::worker, question, list_of(question.read), check);
  if (!question.write.empty())
    ask_one(self, role::keeper, question, question.write, check);
  if (const auto file = tokenizer_of(job); !file.empty())
    ask_one(self, role::gateway, {{file}, {}, {}, {}}, file, check);
  if (job.budget.is_set())
    ask_broker(self, job, check);
  auto promise = check->promise;
  check->answered();
  return promise;
}

} // namespace parcae
