#include "runtime/web/routes.hpp"

#include "runtime/job/keys_json.hpp"
#include "runtime/view/status_schema.hpp"
#include "runtime/web/page.hpp"

#include <boost/json.hpp>

namespace parcae {

namespace {

bool is_api(const web_target& x) {
  return x.path.size() >= 3 && x.path[0] == "api" && x.path[1] == "v1";
}

bool is_probe(const web_target& x) {
  return x.path.size() == 1 && (x.path[0] == "healthz" || x.path[0] == "readyz");
}

bool is_question_of_access(const web_target& x) {
  return is_api(x) && x.path.size() == 3 && x.path[2] == "access";
}

std::uint64_t job_in(const web_target& x) {
  return parse_number(x.path.at(3), "a job's number");
}

web_routes::result later(std::function<boost::json::value()> f) {
  return {{}, [f = std::move(f)] { return answer_of(boost::json::serialize(f())); }};
}

web_answer text_answer(unsigned status, std::string text) {
  auto result = answer_of(std::move(text), status);
  result.type = "text/plain; charset=utf-8";
  return result;
}

} // namespace

void web_routes::admit(const web_head& head, const std::string& local, time_point now) {
  const auto target = parse_web_target(head.target);
  const bool changes = head.method == "POST";
  const bool looks = head.method == "GET" || head.method == "HEAD";
  if (looks && page_file(target)) { // has no secrets, and links from elsewhere lead to it
    web_head named;
    named.host = head.host;
    return check_origin(access_, named, local);
  }
  check_origin(access_, head, local);
  if (!changes && !looks)
    throw web_error(405, "only GET, HEAD and POST are known here");
  if (is_probe(target) || is_question_of_access(target))
    return;
  check_token(access_, head, changes);
  if (changes && !changes_.allows(now))
    throw web_error(429, "more than 10 changes a second; try again later");
}

web_routes::result web_routes::take(const web_head& head, std::string body, time_point now) {
  const auto target = parse_web_target(head.target);
  return head.method == "POST" ? change(target, head, std::move(body)) : look(target, head, now);
}

web_routes::result web_routes::look(const web_target& target, const web_head& head, time_point now) {
  if (is_probe(target)) {
    if (target.path[0] == "healthz" || board_.ready(now))
      return {text_answer(200, "ok\n"), {}};
    return {text_answer(503, "the manager has not answered for 5 s\n"), {}};
  }
  if (target.path.size() == 1 && target.path[0] == "metrics") {
    auto answer = answer_of(board_.metrics());
    answer.type = "text/plain; version=0.0.4; charset=utf-8";
    return {std::move(answer), {}};
  }
  if (auto file = page_file(target))
    return {std::move(*file), {}};
  if (!is_api(target))
    throw web_error(404, "there is no such page");
  if (is_question_of_access(target))
    return {answer_of(boost::json::serialize(boost::json::object{{"may", allowed(access_, head)}})), {}};
  const auto& what = target.path[2];
  if (what == "jobs" && target.path.size() >= 4)
    return look_at_job(target);
  if (target.path.size() != 3)
    throw web_error(404, "there is no such resource");
  if (what == "events") {
    web_answer answer;
    if (head.method == "HEAD") {
      answer.type = event_stream;
      answer.body = std::make_shared<const std::string>();
      return {std::move(answer), {}};
    }
    answer.events = {head.last_event_id, target.has("job") ? parse_number(target.value("job"), "job") : 0};
    return {std::move(answer), {}};
  }
  if (what == "status") {
    web_answer answer;
    answer.body = board_.json();
    if (!answer.body)
      throw web_error(503, board_.why_away());
    return {std::move(answer), {}};
  }
  if (what == "checkpoints")
    return {{}, [this] { return answer_of(actions_.checkpoints()); }};
  if (what == "job-keys")
    return {answer_of(job_keys_json()), {}};
  if (what == "schema")
    return {answer_of(status_schema()), {}};
  if (what == "picture")
    return {answer_of(board_.picture(now)), {}};
  if (what == "history")
    return {answer_of(board_.history()), {}};
  throw web_error(404, "there is no such resource");
}

web_routes::result web_routes::look_at_job(const web_target& target) {
  const auto job = job_in(target);
  if (target.path.size() == 4)
    return {{}, [this, job] { return answer_of(actions_.status(job)); }};
  if (target.path.size() == 5 && target.path[4] == "losses") {
    const bool is_each = target.has("from");
    const auto* name = is_each ? "from" : "points";
    const auto number = target.has(name) ? parse_number(target.value(name), name) : 1000;
    return {{}, [this, job, is_each, number] {
              return answer_of(is_each ? actions_.losses(job, number) : actions_.curve(job, number));
            }};
  }
  if (target.path.size() == 5 && target.path[4] == "parameters")
    return {{}, [this, job] {
              web_answer answer;
              answer.type = "application/octet-stream";
              answer.file = actions_.parameters(job);
              answer.headers.emplace_back("Content-Disposition",
                                          "attachment; filename=\"job-" + std::to_string(job) + ".safetensors\"");
              return answer;
            }};
  throw web_error(404, "there is no such resource");
}

web_routes::result web_routes::change(const web_target& target, const web_head& head, std::string body) {
  if (!is_api(target))
    throw web_error(404, "there is nothing to change");
  const auto& what = target.path[2];
  if (what == "jobs" && target.path.size() == 3) {
    submission x;
    x.text = std::move(body);
    x.json = head.type.starts_with("application/json");
    if (target.has("name"))
      x.name = target.value("name");
    const auto [first, last] = target.query.equal_range("set");
    for (auto i = first; i != last; ++i)
      x.changes.push_back(i->second);
    if (target.has("priority"))
      x.priority = static_cast<std::int32_t>(parse_number(target.value("priority"), "priority", 1000));
    const bool only_check = target.has("check");
    return later([this, x = std::move(x), only_check] { return only_check ? actions_.check(x) : actions_.submit(x); });
  }
  if (what == "jobs" && target.path.size() == 5) {
    const auto job = job_in(target);
    if (target.path[4] == "cancel")
      return later([this, job] { return actions_.cancel(job); });
    if (target.path[4] == "checkpoint")
      return later([this, job] { return actions_.checkpoint(job); });
  }
  if (what == "preempt" && target.path.size() == 3)
    return later([this, x = parse_preemption(body)] { return actions_.preempt(x); });
  throw web_error(404, "there is nothing to change");
}

} // namespace parcae
