#include "runtime/web/event_log.hpp"

#include "runtime/view/status_json.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>

namespace parcae {

namespace {

namespace json = boost::json;

/// On the manager's clock since 1970.
std::int64_t wall_us(const status_reply& x, std::int64_t at_us) {
  return x.wall_us - x.now_us + at_us;
}

/// Calls f with each that was not there before, or was another.
template <class T, class Same, class Function>
void for_each_new(const std::vector<T>& now, const std::vector<T>& before, Same same, Function f) {
  for (const auto& x : now) {
    const auto i = std::ranges::lower_bound(before, x.number, {}, &T::number);
    if (i == before.end() || !same(x, *i))
      f(x);
  }
}

/// What happened to a job as another status has it. A manager that came back knows its time by the clock on the wall.
class same_of_job {
public:
  same_of_job(const status_reply& now, const status_reply& before) : later_us_(wall_us(now, 0) - wall_us(before, 0)) {}

  template <class T>
  bool operator()(const T& x, const T& before) const {
    constexpr std::int64_t nearly_us = 1'000'000;
    if (x == before)
      return true;
    if (std::abs(x.at_us - before.at_us + later_us_) >= nearly_us)
      return false;
    auto then = before;
    then.at_us = x.at_us;
    return x == then;
  }

private:
  const std::int64_t later_us_;
};

/// An object of the view, with its job and its time since 1970.
template <class T>
std::string told_of(const status_reply& in, const T& x, std::uint64_t job) {
  auto object = object_of(x);
  object["job"] = job;
  object["wall_us"] = wall_us(in, x.at_us);
  return json::serialize(object);
}

std::string step_of(const status_reply& in, const job_status& x) {
  const auto finite = [](double y) { return std::isfinite(y) ? json::value(y) : json::value(nullptr); };
  return json::serialize(json::object{{"job", x.id},
                                      {"state", x.state},
                                      {"phase", x.phase},
                                      {"steps", x.steps_done},
                                      {"loss", x.loss_steps < 0 ? json::value(nullptr) : finite(x.loss)},
                                      {"loss_steps", x.loss_steps},
                                      {"gradient_norm", finite(x.gradient_norm)},
                                      {"learning_rate", finite(x.learning_rate)},
                                      {"samples_per_s", finite(x.samples_per_s)},
                                      {"wall_us", in.wall_us}});
}

bool has_moved(const job_status& x, const job_status* before) {
  return !before || before->steps_done != x.steps_done || before->state != x.state || before->phase != x.phase ||
         before->generation != x.generation;
}

} // namespace

web_event event_log::add(const char* kind, std::uint64_t job, const std::string& data) {
  web_event x{next_, job,
              std::make_shared<const std::string>("id: " + life_ + "-" + std::to_string(next_) + "\nevent: " + kind +
                                                  "\ndata: " + data + "\n\n")};
  ++next_;
  bytes_ += x.text->size();
  events_.push_back(x);
  for (; bytes_ > max_bytes; events_.pop_front())
    bytes_ -= events_.front().text->size();
  return x;
}

std::vector<web_event> event_log::take(const status_reply& x, const status_reply& before) {
  std::vector<web_event> result;
  const bool same = x.manager_life == before.manager_life;
  const status_reply none;
  const auto& old = same ? before : none;
  for_each_new(x.news, old.news, std::equal_to(),
               [&](const auto& y) { result.push_back(add("news", 0, told_of(x, y, y.job))); });
  for_each_new(x.failures, old.failures, std::equal_to(),
               [&](const auto& y) { result.push_back(add("failure", y.job, told_of(x, y, y.job))); });
  const job_status unknown;
  const same_of_job is_same(x, old);
  for (const auto& job : x.jobs) {
    const auto i = std::ranges::find(old.jobs, job.id, &job_status::id);
    const auto* known = i == old.jobs.end() ? nullptr : &*i;
    const auto& was = known && known->detailed ? *known : unknown;
    const auto tell = [&](const char* kind) {
      return [&result, &x, &job, kind, this](const auto& y) {
        result.push_back(add(kind, job.id, told_of(x, y, job.id)));
      };
    };
    for_each_new(job.changes, was.changes, is_same, tell("change"));
    for_each_new(job.decisions, was.decisions, is_same, tell("decision"));
    for_each_new(job.events, was.events, is_same, tell("event"));
    if (has_moved(job, known)) {
      result.push_back(add("step", job.id, step_of(x, job)));
      last_steps_[job.id] = result.back();
    }
  }
  std::erase_if(last_steps_,
                [&](const auto& y) { return std::ranges::find(x.jobs, y.first, &job_status::id) == x.jobs.end(); });
  return result;
}

web_event event_log::away(const std::string& why, std::int64_t since_wall_us) {
  return add("manager", 0,
             json::serialize(json::object{{"up", why.empty()}, {"why", why}, {"since_wall_us", since_wall_us}}));
}

std::vector<web_event> event_log::after(const std::string& id) const {
  std::uint64_t number = 0;
  if (id.starts_with(life_ + "-")) {
    const auto text = std::string_view(id).substr(life_.size() + 1);
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  std::vector<web_event> result;
  for (const auto& [job, x] : last_steps_)
    if (x.number > number && (events_.empty() || x.number < events_.front().number))
      result.push_back(x);
  std::ranges::sort(result, {}, &web_event::number);
  const auto i = std::ranges::upper_bound(events_, number, {}, &web_event::number);
  result.insert(result.end(), i, events_.end());
  return result;
}

} // namespace parcae
