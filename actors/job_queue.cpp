#include "actors/job_queue.hpp"

#include <algorithm>

namespace parcae {

namespace {

constexpr std::size_t most_jobs = 100;

bool over(const job_entry& x) {
  return x.state != job_state::queued && x.state != job_state::running;
}

} // namespace

std::string to_string(job_state x) {
  switch (x) {
  case job_state::queued:
    return "queued";
  case job_state::running:
    return "running";
  case job_state::done:
    return "done";
  case job_state::failed:
    return "failed";
  case job_state::cancelled:
    return "cancelled";
  }
  return "unknown";
}

bool job_queue::full() const {
  return jobs_.size() >= most_jobs && std::ranges::none_of(jobs_, [](const auto& j) { return over(j.second); });
}

job_id job_queue::submit(job_specification x) {
  if (jobs_.size() >= most_jobs) {
    auto oldest = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return over(j.second); });
    if (oldest != jobs_.end())
      jobs_.erase(oldest);
  }
  job_id id{++last_};
  jobs_[id].specification = std::move(x);
  return id;
}

std::optional<job_id> job_queue::start_next() {
  if (running_)
    return std::nullopt;
  for (auto& [id, job] : jobs_)
    if (job.state == job_state::queued) {
      job.state = job_state::running;
      running_ = id;
      return id;
    }
  return std::nullopt;
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
  job.state = good ? job_state::done : job.cancel_asked ? job_state::cancelled : job_state::failed;
  if (!good)
    job.why = std::move(why);
}

} // namespace parcae
