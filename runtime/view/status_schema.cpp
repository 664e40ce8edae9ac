#include "runtime/view/status_schema.hpp"

#include "protocols/client/client.hpp"

#include <boost/json.hpp>

#include <concepts>
#include <map>
#include <type_traits>

namespace parcae {

namespace {

namespace json = boost::json;
using json::object;

// --- by type, as in status_json.cpp

template <std::integral T>
object schema_of(std::type_identity<T>) {
  return {{"type", std::is_same_v<T, bool> ? "boolean" : "integer"}};
}

object schema_of(std::type_identity<double>) {
  return {{"type", {"number", "null"}}};
}

object schema_of(std::type_identity<std::string>) {
  return {{"type", "string"}};
}

object schema_of(std::type_identity<incarnation>) {
  return {{"type", "string"}, {"pattern", "^[0-9a-f]{16}$"}};
}

object schema_of(std::type_identity<generation>) {
  return {{"type", "integer"}};
}

template <class T>
object schema_of(std::type_identity<std::vector<T>>);

template <class T>
object schema_of(std::type_identity<std::map<std::uint64_t, T>>);

object schema_of(std::type_identity<chain_link>);
object schema_of(std::type_identity<configuration_status>);
object schema_of(std::type_identity<job_status>);

template <described T>
object schema_of(std::type_identity<T>);

template <class T>
object schema_of() {
  return schema_of(std::type_identity<T>{});
}

object list_of(object items) {
  return {{"type", "array"}, {"items", std::move(items)}};
}

object closed(object properties) {
  json::array required;
  for (const auto& [name, unused] : properties)
    required.emplace_back(name);
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

template <described T>
object properties_of() {
  object result;
  const T x{};
  for_each_field(x, [&]<class Field>(const char* name, const Field& field) {
    if constexpr (std::is_same_v<Field, pass_times>)
      for_each_field(field,
                     [&](const char* kind, double) { result[std::string(name) + "_" + kind] = schema_of<double>(); });
    else
      result[name] = schema_of<Field>();
  });
  return result;
}

template <class T>
object schema_of(std::type_identity<std::vector<T>>) {
  return list_of(schema_of<T>());
}

template <class T>
object schema_of(std::type_identity<std::map<std::uint64_t, T>>) {
  return {{"type", "object"}, {"additionalProperties", schema_of<T>()}};
}

object schema_of(std::type_identity<chain_link>) {
  auto result = properties_of<chain_link>();
  result["last"] = object{{"type", {"integer", "null"}}};
  return closed(std::move(result));
}

object schema_of(std::type_identity<configuration_status>) {
  const auto number = schema_of<double>(), whole = schema_of<std::uint64_t>();
  return closed({{"width", whole},
                 {"depth", whole},
                 {"predicted_samples_per_s", number},
                 {"measured_samples_per_s", number},
                 {"measured_by", object{{"enum", {nullptr, "cpu", "clock"}}}},
                 {"samples_per_s", number},
                 {"low_samples_per_s", number},
                 {"high_samples_per_s", number},
                 {"steps", whole},
                 {"visits", whole}});
}

object schema_of(std::type_identity<job_status>) {
  auto result = properties_of<job_status>();
  for (const auto* name : {"grid", "grid_incarnations"}) // by pipeline
    result[name] = list_of(result.at(name).as_object());
  return closed(std::move(result));
}

template <described T>
object schema_of(std::type_identity<T>) {
  return closed(properties_of<T>());
}

} // namespace

std::string status_schema() {
  auto result = schema_of<status_reply>();
  result["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  result["title"] = "What `parcae status --json` and /api/v1/status say";
  return json::serialize(result);
}

} // namespace parcae
