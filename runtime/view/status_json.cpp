#include "runtime/view/status_json.hpp"

#include <boost/json.hpp>

#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <concepts>
#include <map>

namespace parcae {

namespace {

namespace json = boost::json;

// --- by type: all that is not the same for each field

template <std::integral T>
json::value value_of(T x) {
  return x;
}

// JSON has no NaN, and a job that diverges must not make the whole status unreadable.
json::value value_of(double x) {
  return std::isfinite(x) ? json::value(x) : json::value(nullptr);
}

json::value value_of(const std::string& x) {
  return json::value(json::string_view(x));
}

json::value value_of(incarnation x) {
  return value_of(fmt::format("{:016x}", x.value));
}

json::value value_of(generation x) {
  return x.value;
}

template <class T>
json::value value_of(const std::vector<T>& all);

template <class T>
json::value value_of(const std::map<std::uint64_t, T>& all);

template <described T>
json::value value_of(const T& x);

template <described T>
json::object all_fields(const T& x) {
  json::object result;
  for_each_field(x, [&]<class Field>(const char* name, const Field& field) {
    if constexpr (std::is_same_v<Field, pass_times>)
      for_each_field(field,
                     [&](const char* kind, double ms) { result[fmt::format("{}_{}", name, kind)] = value_of(ms); });
    else
      result[name] = value_of(field);
  });
  return result;
}

template <described T>
json::object object_of(const T& x) {
  return all_fields(x);
}

json::object object_of(const chain_link& x) {
  auto result = all_fields(x);
  if (x.last == UINT64_MAX) // while a generation runs its end is open
    result["last"] = nullptr;
  return result;
}

json::object object_of(const configuration_status& x) {
  const bool measured = x.measured_steps > 0;
  return {{"width", x.width},
          {"depth", x.depth},
          {"predicted_samples_per_s", value_of(x.predicted_samples_per_s)},
          {"measured_samples_per_s", measured ? value_of(x.samples_per_s) : json::value(nullptr)},
          {"measured_by", !measured ? json::value(nullptr) : json::value(x.measured_by_cpu ? "cpu" : "clock")},
          {"samples_per_s", value_of(x.samples_per_s)},
          {"low_samples_per_s", value_of(x.low_samples_per_s)},
          {"high_samples_per_s", value_of(x.high_samples_per_s)},
          {"steps", x.measured_steps},
          {"visits", x.visits}};
}

template <class T>
json::value value_of(const std::vector<T>& all) {
  json::array result;
  for (const auto& x : all)
    result.push_back(value_of(x));
  return result;
}

template <class T>
json::value value_of(const std::map<std::uint64_t, T>& all) {
  json::object result;
  for (const auto& [key, x] : all)
    result[std::to_string(key)] = value_of(x);
  return result;
}

template <described T>
json::value value_of(const T& x) {
  return object_of(x);
}

} // namespace

std::string json_of(const status_reply& x) {
  return json::serialize(all_fields(x));
}

json::object object_of(const job_status& x) {
  auto result = all_fields(x);
  json::array grid, incarnations; // by pipeline
  for (std::uint32_t d = 0; d < x.width; ++d) {
    json::array pipeline, of_pipeline;
    for (std::uint32_t p = 0; p < x.depth; ++p) {
      const auto rank = std::size_t{d} * x.depth + p;
      pipeline.push_back(value_of(x.grid.at(rank)));
      if (rank < x.grid_incarnations.size()) // a manager of an older build does not tell
        of_pipeline.push_back(value_of(x.grid_incarnations[rank]));
    }
    grid.push_back(std::move(pipeline));
    incarnations.push_back(std::move(of_pipeline));
  }
  result["grid"] = std::move(grid);
  result["grid_incarnations"] = std::move(incarnations);
  if (x.loss_steps < 0)
    result["loss"] = nullptr;
  if (x.evaluated_steps < 0)
    result["validation_loss"] = nullptr;
  return result;
}

json::object object_of(const layer_cost& x) {
  return all_fields(x);
}

json::object object_of(const change_figures& x) {
  return all_fields(x);
}

json::object object_of(const change_status& x) {
  return all_fields(x);
}

json::object object_of(const decision& x) {
  return all_fields(x);
}

json::object object_of(const event_status& x) {
  return all_fields(x);
}

json::object object_of(const failure_status& x) {
  return all_fields(x);
}

} // namespace parcae
