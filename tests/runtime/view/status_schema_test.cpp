// The schema of `status --json`, held against what is written.

#include "runtime/view/status_json.hpp"
#include "runtime/view/status_schema.hpp"
#include "tests/support/client_samples.hpp"
#include "tests/support/names.hpp"

#include <boost/json.hpp>

#include <cmath>
#include <regex>

namespace parcae {
namespace {

namespace json = boost::json;

bool is_of(const json::value& x, json::string_view type) {
  return (type == "null" && x.is_null()) || (type == "boolean" && x.is_bool()) || (type == "number" && x.is_number()) ||
         (type == "integer" && (x.is_int64() || x.is_uint64())) || (type == "string" && x.is_string()) ||
         (type == "array" && x.is_array()) || (type == "object" && x.is_object());
}

bool is_one_of(const json::value& x, const json::value& types) {
  if (types.is_string())
    return is_of(x, types.get_string());
  return std::ranges::any_of(types.as_array(), [&](const auto& y) { return is_of(x, y.as_string()); });
}

/// Where it is not as the schema says; empty: it is. Knows what of JSON Schema is used there, and throws at all else.
std::string problem_of(const json::object& schema, const json::value& x, const std::string& path) {
  const json::object* properties = nullptr;
  for (const auto& [word, wanted] : schema)
    if (word == "type") {
      if (!is_one_of(x, wanted))
        return path + " is " + json::serialize(x);
    } else if (word == "enum") {
      if (std::ranges::find(wanted.as_array(), x) == wanted.as_array().end())
        return path + " is " + json::serialize(x);
    } else if (word == "pattern") {
      if (!std::regex_search(std::string(x.as_string()), std::regex(std::string(wanted.as_string()))))
        return path + " is " + json::serialize(x);
    } else if (word == "items") {
      for (const auto& y : x.as_array())
        if (auto problem = problem_of(wanted.as_object(), y, path + "[]"); !problem.empty())
          return problem;
    } else if (word == "required") {
      for (const auto& name : wanted.as_array())
        if (!x.as_object().contains(name.as_string()))
          return path + " has no " + std::string(name.as_string());
    } else if (word == "properties") {
      properties = &wanted.as_object();
    } else if (word != "additionalProperties" && word != "$schema" && word != "title") {
      throw std::logic_error("unknown: " + std::string(word));
    }
  if (!x.is_object())
    return "";
  for (const auto& [name, y] : x.get_object()) {
    const auto* known = properties ? properties->if_contains(name) : nullptr;
    const auto& rest = schema.at("additionalProperties");
    if (!known && !rest.is_object())
      return path + " has " + std::string(name);
    const auto& next = known ? known->as_object() : rest.as_object();
    if (auto problem = problem_of(next, y, path + "." + std::string(name)); !problem.empty())
      return problem;
  }
  return "";
}

std::string problem_of(const json::value& x) {
  return problem_of(json::parse(status_schema()).as_object(), x, "");
}

// given: a status with something in every field, an empty one, one that diverged, with all that may be missing /
// expected: as the schema says; with a field less, more, or of another type it is not
TEST(status_schema, is_of_what_is_written) {
  EXPECT_EQ(problem_of(json::parse(json_of(sample_status()))), "");
  EXPECT_EQ(problem_of(json::parse(json_of({}))), "");
  auto odd = sample_status();
  odd.jobs[0].loss = std::nan("");
  odd.jobs[0].evaluated_steps = -1;
  odd.jobs[0].configurations[0].measured_steps = 0;
  odd.jobs[0].chain[0].last = UINT64_MAX;
  odd.jobs.push_back({});
  EXPECT_EQ(problem_of(json::parse(json_of(odd))), "");

  const auto good = json::parse(json_of(sample_status()));
  auto bad = good;
  bad.as_object()["other"] = 1;
  EXPECT_EQ(problem_of(bad), " has other");
  bad = good;
  bad.at("jobs").at(0).as_object().erase("loss");
  EXPECT_EQ(problem_of(bad), ".jobs[] has no loss");
  for (const auto& [name, x] : std::map<std::string, json::value>{
           {"loss", "1"}, {"steps", 1.5}, {"detailed", 1}, {"grid", {"a"}}, {"name", nullptr}}) {
    bad = good;
    bad.at("jobs").at(0).as_object()[name] = x;
    EXPECT_THAT(problem_of(bad), HasSubstr(".jobs[]." + name));
  }
}

} // namespace
} // namespace parcae
