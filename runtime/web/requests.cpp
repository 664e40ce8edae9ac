#include "runtime/web/requests.hpp"

#include "protocols/base/duration.hpp"
#include "runtime/web/message.hpp"

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

} // namespace parcae
