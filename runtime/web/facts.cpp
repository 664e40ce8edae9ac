#include "runtime/web/facts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace parcae {

namespace {

// What is asked for once more: a change or a decision gets its figures while it goes on.
constexpr std::uint64_t may_change = 16;

std::uint64_t from(std::uint64_t count) {
  return count - std::min(count, may_change);
}

const job_status* detailed_in(const status_reply& x) {
  const auto i = std::ranges::find_if(x.jobs, &job_status::detailed);
  return i == x.jobs.end() ? nullptr : &*i;
}

/// Puts what is older before what has come.
template <class T>
void put_before(std::vector<T>& came, std::vector<T> old) {
  if (!came.empty())
    std::erase_if(old, [first = came.front().number](const T& x) { return x.number >= first; });
  old.insert(old.end(), std::make_move_iterator(came.begin()), std::make_move_iterator(came.end()));
  if (old.size() > cluster_facts::kept)
    old.erase(old.begin(), old.end() - static_cast<std::ptrdiff_t>(cluster_facts::kept));
  came = std::move(old);
}

/// It goes on where the other was: not from its beginning, as one does that came back.
bool follows(const status_reply& x, const status_reply& before) {
  return x.manager_life == before.manager_life && x.now_us >= before.now_us && x.news_count >= before.news_count;
}

/// The same of a job, which is in the manager's journal but for what it had no time to put there.
bool follows(const job_status& x, const job_status& before) {
  return x.id == before.id && x.change_count >= before.change_count && x.event_count >= before.event_count &&
         x.decision_count >= before.decision_count;
}

/// What is older, of the instances.
void add_news_to(status_reply& x, status_reply& before) {
  put_before(x.news, std::move(before.news));
  std::erase_if(before.failures, [&](const failure_status& f) { // of each instance there is the newest
    return std::ranges::any_of(x.failures, [&](const auto& y) { return y.instance == f.instance; });
  });
  std::ranges::move(x.failures, std::back_inserter(before.failures));
  x.failures = std::move(before.failures);
}

/// Likewise of one job.
void add_job_to(status_reply& x, status_reply& before, std::uint64_t id) {
  for (auto& job : x.jobs)
    for (auto& old : before.jobs)
      if (job.id == id && job.detailed && follows(job, old)) {
        put_before(job.changes, std::move(old.changes));
        put_before(job.events, std::move(old.events));
        put_before(job.decisions, std::move(old.decisions));
      }
}

} // namespace

void cluster_facts::take(status_reply x) {
  const auto whole = known_ == 0; // it was asked for all
  const auto* detailed = detailed_in(x);
  const auto known = detailed ? detailed->id : 0;
  const auto goes_on = whole || follows(x, status_);
  if (!whole && goes_on)
    add_news_to(x, status_);
  if (!whole && x.manager_life == status_.manager_life)
    add_job_to(x, status_, known_);
  known_ = whole || (goes_on && known == known_) ? known : 0;
  status_ = std::move(x);
}

status_request cluster_facts::next() const {
  if (known_ == 0)
    return {};
  status_request result{.news_from = from(status_.news_count), .failures_from = status_.failure_count};
  const auto& job = *detailed_in(status_);
  result.changes_from = from(job.change_count);
  result.events_from = from(job.event_count);
  result.decisions_from = from(job.decision_count);
  return result;
}

} // namespace parcae
