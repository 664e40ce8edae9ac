#include "actors/manager/job_queue.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_jobs = 100;

bool over(const job_entry& x) {
  return is_over(x.state);
}

} // namespace

BOOST_DESCRIBE_ENUM(job_state, queued, running, done, failed, cancelled)

std::string to_string(job_state x) {
  return std::string(enum_name(x));
}

job_record record_of(const job_entry& x) {
  return {.specification = x.specification,
          .state = static_cast<std::uint8_t>(x.state),
          .priority = x.priority,
          .cancel_asked = x.cancel_asked,
          .gave_way = x.gave_way,
          .why = x.why,
          .owner = x.owner,
          .submitted_ms = x.submitted_ms};
}

job_entry entry_from(const job_record& x) {
  if (x.state > static_cast<std::uint8_t>(job_state::cancelled))
    throw std::runtime_error("the journal has a job in a state that there is not");
  job_entry result;
  result.specification = x.specification;
  result.state = static_cast<job_state>(x.state);
  result.priority = x.priority;
  result.cancel_asked = x.cancel_asked;
  result.gave_way = x.gave_way;
  result.why = x.why;
  result.owner = x.owner;
  result.submitted_ms = x.submitted_ms;
  return result;
}

bool job_queue::full() const {
  return jobs_.size() >= max_jobs && std::ranges::none_of(jobs_, [](const auto& j) { return over(j.second); });
}

job_id job_queue::submit(job_specification x, std::int32_t priority, std::string owner, std::int64_t submitted_ms) {
  if (jobs_.size() >= max_jobs) {
    auto oldest = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return over(j.second); });
    if (oldest != jobs_.end())
      jobs_.erase(oldest);
  }
  job_id id{++last_};
  auto& job = jobs_[id];
  job.specification = std::move(x);
  job.priority = priority;
  job.owner = std::move(owner);
  job.submitted_ms = submitted_ms;
  return id;
}

void job_queue::restore(job_id id, job_entry x) {
  if (x.state == job_state::running)
    running_ = id;
  last_ = std::max(last_, id.value);
  jobs_.insert_or_assign(id, std::move(x));
}

std::vector<job_id> job_queue::waiting(std::optional<std::int32_t> like) const {
  std::vector<job_id> result;
  for (const auto& [id, job] : jobs_)
    if (job.state == job_state::queued && (!like || (job.priority >= *like && !job.gave_way)))
      result.push_back(id);
  std::ranges::stable_sort(result, {}, [&](job_id id) {
    const auto& job = jobs_.at(id);
    return std::pair(job.gave_way, -job.priority);
  });
  return result;
}

std::optional<job_id> job_queue::start_next(const obstacle& why_not) {
  if (running_)
    return std::nullopt;
  const auto first = first_that_can(why_not);
  if (first)
    jobs_.at(*first).state = job_state::running;
  return running_ = first;
}

std::optional<job_id> job_queue::first_that_can(const obstacle& why_not) {
  std::optional<job_id> result;
  for (const auto id : waiting()) {
    auto& job = jobs_.at(id);
    job.why = why_not(job.specification);
    if (job.why.empty() && !result)
      result = id;
  }
  return result;
}

bool job_queue::give_way() {
  if (!running_)
    return false;
  auto& job = jobs_.at(*running_);
  if (job.gave_way || job.gives_way || job.cancel_asked)
    return false;
  return job.gives_way = true;
}

bool job_queue::cancel(job_id x) {
  auto i = jobs_.find(x);
  if (i == jobs_.end() || over(i->second))
    return false;
  i->second.cancel_asked = true;
  if (i->second.state == job_state::queued)
    i->second.state = job_state::cancelled;
  return true;
}

void job_queue::end(job_id x, bool good, std::string why) {
  auto i = jobs_.find(x);
  if (running_ != x || i == jobs_.end())
    return;
  running_.reset();
  auto& job = i->second;
  if (std::exchange(job.gives_way, false) && !good && !job.cancel_asked) {
    job.gave_way = true;
    job.state = job_state::queued;
    job.why = std::move(why);
    return;
  }
  job.state = good ? job_state::done : job.cancel_asked ? job_state::cancelled : job_state::failed;
  job.why = good ? "" : std::move(why);
}

} // namespace parcae
