#include "runtime/web/actions.hpp"

#include "protocols/base/duration.hpp"
#include "runtime/job/job_file.hpp"
#include "runtime/process/client.hpp"
#include "runtime/view/status_json.hpp"

#include <boost/json.hpp>

namespace parcae {

namespace {

namespace json = boost::json;

json::value parsed(std::string_view text) {
  boost::system::error_code bad;
  auto result = json::parse(json::string_view(text.data(), text.size()), bad);
  if (bad)
    throw web_error(400, "the body is no JSON: " + bad.message());
  if (!result.is_object())
    throw web_error(400, "the body must be an object");
  return result;
}

/// A table of an array stands in braces; all else is written in TOML as in JSON.
std::string toml_value(const json::value& x) {
  std::string result;
  if (const auto* list = x.if_array()) {
    for (const auto& y : *list)
      result += (result.empty() ? "" : ", ") + toml_value(y);
    return "[" + result + "]";
  }
  if (const auto* table = x.if_object()) {
    for (const auto& [key, y] : *table)
      result += (result.empty() ? "" : ", ") + json::serialize(json::value(key)) + " = " + toml_value(y);
    return "{" + result + "}";
  }
  if (x.is_null())
    throw web_error(400, "null is no value of a job");
  return json::serialize(x);
}

/// Asks the manager, on a connection of its own, as a command does.
template <class Function>
auto asked(const manager_option& manager, Function f) {
  try {
    manager_client client(manager.access());
    try {
      return f(client);
    } catch (const refused_request& e) {
      throw web_error(409, e.what());
    }
  } catch (const client_error& e) {
    throw web_error(503, e.what());
  }
}

job_specification job_of(const submission& x) {
  try {
    return parse_job(x.json ? toml_of(x.text) : x.text, x.name, x.changes);
  } catch (const job_file_error& e) {
    throw web_error(400, e.what());
  }
}

class actions_of_manager : public web_actions {
public:
  explicit actions_of_manager(manager_option manager) : manager_(std::move(manager)) {}

  json::value submit(const submission& x) override {
    const auto job = job_of(x);
    return asked(manager_, [&](auto& client) -> json::value {
      return json::object{{"job", client.submit(job, x.priority)}};
    });
  }

  json::value check(const submission& x) override {
    const auto job = job_of(x);
    return asked(manager_, [&](auto& client) -> json::value {
      const auto found = client.check(job, x.priority);
      json::object result;
      for_each_field(found, [&](const char* name, const auto& field) { result[name] = json::value_from(field); });
      return result;
    });
  }

  json::value cancel(std::uint64_t job) override {
    return asked(manager_, [&](auto& client) -> json::value {
      client.cancel(job);
      return json::object{{"job", job}};
    });
  }

  json::value checkpoint(std::uint64_t job) override {
    return asked(manager_, [&](auto& client) -> json::value {
      client.checkpoint(job);
      return json::object{{"job", job}};
    });
  }

  json::value preempt(const preemption& x) override {
    return asked(manager_, [&](auto& client) -> json::value {
      const auto names = client.preempt({x.names, x.any, x.seed, static_cast<std::uint64_t>(x.notice.count())});
      return json::object{{"names", json::value_from(names)}};
    });
  }

  std::string status(std::uint64_t job) override {
    return asked(manager_, [&](auto& client) { return json_of(client.status({.job = job})); });
  }

  std::string losses(std::uint64_t job) override {
    return asked(manager_, [&](auto& client) {
      const auto x = client.status({.job = job, .changes_from = UINT64_MAX, .events_from = UINT64_MAX});
      const auto all = object_of(x.jobs.at(0));
      return json::serialize(
          json::object{{"losses", all.at("losses")}, {"validation_losses", all.at("validation_losses")}});
    });
  }

private:
  const manager_option manager_;
};

} // namespace

std::string toml_of(std::string_view text) {
  std::string result;
  const auto whole = parsed(text);
  for (const auto& [section, keys] : whole.get_object()) {
    if (!keys.is_object())
      throw web_error(400, "a job in JSON has objects of keys: {\"job\": {\"steps\": 100}}");
    result += json::serialize(json::value(section)) + " = " + toml_value(keys) + "\n";
  }
  return result;
}

preemption parse_preemption(std::string_view text) {
  preemption result;
  const auto whole = parsed(text);
  const auto number = [](const json::value& x, const char* what) { return parse_number(json::serialize(x), what); };
  for (const auto& [key, x] : whole.get_object())
    if (key == "names" && x.is_array())
      for (const auto& name : x.get_array())
        if (name.is_string())
          result.names.emplace_back(name.get_string());
        else
          throw web_error(400, "names must be a list of instances");
    else if (key == "any")
      result.any = static_cast<std::uint32_t>(number(x, "any"));
    else if (key == "seed")
      result.seed = number(x, "seed");
    else if (key == "notice" && x.is_string() && parse_duration(x.get_string()))
      result.notice = *parse_duration(x.get_string());
    else
      throw web_error(400, "a preemption has \"names\" or \"any\" and \"seed\", and \"notice\" such as \"30s\"");
  if (result.names.empty() == (result.any == 0))
    throw web_error(400, "a preemption needs \"names\" of instances, or \"any\", how many");
  if (result.notice > std::chrono::hours(24))
    throw web_error(400, "notice is at most 24h");
  return result;
}

std::unique_ptr<web_actions> make_web_actions(const manager_option& manager) {
  return std::make_unique<actions_of_manager>(manager);
}

} // namespace parcae
