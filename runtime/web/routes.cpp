#include "runtime/web/routes.hpp"

#include "protocols/client/client.hpp"
#include "runtime/job/keys_json.hpp"
#include "runtime/view/status_schema.hpp"
#include "runtime/web/page.hpp"

#include <boost/json.hpp>

#include <algorithm>

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
  const auto result = parse_number(x.path.at(3), "a job's number");
  if (result == 0) // to the manager that is all of them
    throw web_error(404, "no such job: 0; the first one is 1");
  return result;
}

std::int32_t priority_in(const web_target& x) {
  auto text = x.value("priority");
  const bool is_less = text.starts_with('-');
  text.remove_prefix(is_less ? 1 : 0);
  const auto size = static_cast<std::int32_t>(parse_number(text, "priority", max_priority));
  return is_less ? -size : size;
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

web_routes::place web_routes::place_of(std::string_view text) const {
  place result{parse_web_target(text)};
  auto& path = result.target.path;
  if (path.size() < 2 || path[0] != "clusters")
    return result;
  const auto found = std::ranges::find(clusters_, path[1], &served_cluster::name);
  if (found == clusters_.end())
    throw web_error(404, "there is no such cluster");
  result.cluster = static_cast<std::size_t>(found - clusters_.begin());
  path.erase(path.begin(), path.begin() + 2);
  return result;
}

void web_routes::admit(const web_head& head, const std::string& local, time_point now) {
  const auto target = place_of(head.target).target;
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
  const auto x = place_of(head.target);
  auto& actions = clusters_[x.cluster].actions;
  auto result = head.method == "POST" ? change(x.target, head, std::move(body), actions) : look(x, head, now);
  result.cluster = x.cluster;
  return result;
}

std::string web_routes::list_of_clusters() const {
  boost::json::array result;
  for (const auto& x : clusters_) {
    auto summary = x.board.summary();
    summary["name"] = x.name;
    result.push_back(std::move(summary));
  }
  return boost::json::serialize(result);
}

web_routes::result web_routes::look(const place& x, const web_head& head, time_point now) {
  const auto& target = x.target;
  auto& [name, board, actions] = clusters_[x.cluster];
  if (is_probe(target)) {
    if (target.path[0] == "healthz" || board.ready(now))
      return {text_answer(200, "ok\n"), {}};
    return {text_answer(503, "the manager has not answered for 5 s\n"), {}};
  }
  if (target.path.size() == 1 && target.path[0] == "metrics") {
    auto answer = answer_of(board.metrics());
    answer.type = "text/plain; version=0.0.4; charset=utf-8";
    return {std::move(answer), {}};
  }
  if (auto file = page_file(target)) {
    if (target.path.empty() && !std::string_view(head.target).substr(0, head.target.find('?')).ends_with('/')) {
      file->status = 308; // the page's files stand beside it
      file->headers.emplace_back("Location", name + "/");
    }
    return {std::move(*file), {}};
  }
  if (!is_api(target))
    throw web_error(404, "there is no such page");
  if (is_question_of_access(target))
    return {answer_of(boost::json::serialize(boost::json::object{{"may", allowed(access_, head)}})), {}};
  const auto& what = target.path[2];
  if (what == "jobs" && target.path.size() >= 4)
    return look_at_job(target, head, actions);
  if (target.path.size() != 3)
    throw web_error(404, "there is no such resource");
  if (what == "events") {
    web_answer answer;
    if (head.method == "HEAD") {
      answer.type = event_stream;
      answer.body = std::make_shared<const std::string>();
      return {std::move(answer), {}};
    }
    answer.events = {head.last_event_id, target.has("job") ? parse_number(target.value("job"), "job") : 0, x.cluster};
    return {std::move(answer), {}};
  }
  if (what == "status") {
    web_answer answer;
    answer.body = board.json();
    if (!answer.body)
      throw web_error(503, board.why_away());
    return {std::move(answer), {}};
  }
  if (what == "checkpoints")
    return {{}, [&actions = clusters_[x.cluster].actions] { return answer_of(actions.checkpoints()); }};
  if (what == "clusters")
    return {answer_of(list_of_clusters()), {}};
  if (what == "job-keys")
    return {answer_of(job_keys_json()), {}};
  if (what == "schema")
    return {answer_of(status_schema()), {}};
  if (what == "picture")
    return {answer_of(board.picture(now)), {}};
  if (what == "history")
    return {answer_of(board.history()), {}};
  throw web_error(404, "there is no such resource");
}

web_routes::result web_routes::look_at_job(const web_target& target, const web_head& head, web_actions& actions) {
  const auto job = job_in(target);
  if (target.path.size() == 4)
    return {{}, [&actions, job] { return answer_of(actions.status(job)); }};
  if (target.path.size() == 5 && target.path[4] == "losses") {
    const bool is_each = target.has("from");
    const auto* name = is_each ? "from" : "points";
    const auto number = target.has(name) ? parse_number(target.value(name), name) : 1000;
    return {{}, [&actions, job, is_each, number] {
              return answer_of(is_each ? actions.losses(job, number) : actions.curve(job, number));
            }};
  }
  if (target.path.size() == 5 && target.path[4] == "parameters")
    return {{},
            [&actions, job, asks = allowed(access_, head) == std::string_view("all"), is_head = head.method == "HEAD"] {
              web_answer answer;
              answer.type = "application/octet-stream";
              if (is_head) // how many bytes is known when they have been written
                answer.body = std::make_shared<const std::string>();
              else
                answer.file = actions.parameters(job, asks);
              answer.headers.emplace_back("Content-Disposition",
                                          "attachment; filename=\"job-" + std::to_string(job) + ".safetensors\"");
              return answer;
            }};
  throw web_error(404, "there is no such resource");
}

web_routes::result web_routes::change(const web_target& target, const web_head& head, std::string body,
                                      web_actions& actions) {
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
      x.priority = priority_in(target);
    const bool only_check = target.has("check");
    return later(
        [&actions, x = std::move(x), only_check] { return only_check ? actions.check(x) : actions.submit(x); });
  }
  if (what == "jobs" && target.path.size() == 5) {
    const auto job = job_in(target);
    if (target.path[4] == "cancel")
      return later([&actions, job] { return actions.cancel(job); });
    if (target.path[4] == "checkpoint")
      return later([&actions, job] { return actions.checkpoint(job); });
  }
  if (what == "preempt" && target.path.size() == 3)
    return later([&actions, x = parse_preemption(body)] { return actions.preempt(x); });
  throw web_error(404, "there is nothing to change");
}

} // namespace parcae
