#include "runtime/web/board.hpp"

#include "runtime/view/status_json.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <chrono>

namespace parcae {

namespace {

constexpr std::chrono::seconds fresh{5};

} // namespace

web_board::web_board(const std::string& life) : events_(life) {}

void web_board::heard(pointer x, time_point now) {
  heard_at_ = now;
  if (!why_away_.empty()) {
    why_away_.clear();
    away_since_us_ = 0;
    tell(events_.away("", x->wall_us));
  }
  const status_reply none;
  for (const auto& event : events_.take(*x, status_ ? *status_ : none))
    tell(event);
  history_.add(point_of(*x));
  metrics_.heard(*x);
  status_ = std::move(x);
  json_.reset();
}

void web_board::away(const std::string& why, std::int64_t wall_us) {
  const bool is_new = why_away_.empty();
  why_away_ = why;
  if (away_since_us_ == 0)
    away_since_us_ = wall_us;
  if (is_new)
    tell(events_.away(why, away_since_us_));
}

bool web_board::ready(time_point now) const {
  return status_ && now - heard_at_ < fresh;
}

std::shared_ptr<const std::string> web_board::json() {
  if (!json_ && status_)
    json_ = std::make_shared<const std::string>(json_of(*status_));
  return json_;
}

boost::json::object web_board::connection() const {
  return {{"up", why_away_.empty()}, {"why", why_away_}, {"since_wall_us", away_since_us_}};
}

boost::json::object web_board::summary() const {
  auto result = connection();
  result["slots"] = status_ ? slots_in(*status_) : 0;
  auto& job = result["job"] = nullptr;
  if (!status_)
    return result;
  if (const auto x = std::ranges::find_if(status_->jobs, &job_status::detailed); x != status_->jobs.end())
    job = {
        {"id", x->id},      {"name", x->name}, {"state", x->state}, {"phase", x->phase}, {"steps_done", x->steps_done},
        {"steps", x->steps}};
  return result;
}

std::string web_board::picture(time_point now) {
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - heard_at_).count();
  auto fields = connection();
  fields["age_ms"] = status_ ? age : -1;
  auto text = boost::json::serialize(fields);
  text.pop_back();
  return text + ",\"status\":" + (status_ ? *json() : "null") + "}";
}

std::shared_ptr<const web_board::listener> web_board::listen(listener x) {
  auto result = std::make_shared<const listener>(std::move(x));
  listeners_.emplace_back(result);
  return result;
}

void web_board::tell(const web_event& x) {
  std::erase_if(listeners_, [](const auto& y) { return y.expired(); });
  for (const auto& y : listeners_)
    if (const auto f = y.lock())
      (*f)(x);
}

} // namespace parcae
