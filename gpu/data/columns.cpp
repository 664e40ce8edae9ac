#include "gpu/data/columns.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace parcae {

namespace {

namespace json = boost::json;

constexpr std::uint64_t max_values = 1 << 28; ///< of a sample

const json::value& member(const json::object& of, std::string_view key) {
  const auto* found = of.if_contains(key);
  if (!found)
    throw std::runtime_error("lacks \"" + std::string(key) + "\"");
  return *found;
}

std::int64_t whole(const json::value& x, std::int64_t most, const char* what) {
  const auto* value = x.if_int64();
  if (!value || *value < 1 || *value > most)
    throw std::runtime_error(std::string(what) + " must be a whole number from 1 to " + std::to_string(most));
  return *value;
}

column column_of(const json::value& x) {
  static constexpr std::array<std::pair<std::string_view, std::pair<unsigned, bool>>, 5> types{{{"uint8", {1, false}},
                                                                                                {"uint16", {2, false}},
                                                                                                {"int32", {4, true}},
                                                                                                {"uint32", {4, false}},
                                                                                                {"int64", {8, true}}}};
  const auto* object = x.if_object();
  if (!object)
    throw std::runtime_error("has a column that is no object");
  const auto* name = member(*object, "name").if_string();
  if (!name || name->empty() || name->size() > 100 ||
      std::ranges::any_of(*name, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    throw std::runtime_error("has a column whose name is not 1 to 100 printable characters");
  column result{std::string(*name), 0, false, {}};
  const auto* type = member(*object, "type").if_string();
  const auto known = std::ranges::find_if(types, [&](const auto& t) { return type && *type == t.first; });
  if (known == types.end())
    throw std::runtime_error("its column " + result.name + " is of no known type: uint8, uint16, int32, uint32, int64");
  std::tie(result.bytes, result.is_signed) = known->second;
  const auto* shape = member(*object, "shape").if_array();
  if (!shape || shape->size() > 8)
    throw std::runtime_error("its column " + result.name + " has no shape of at most 8 extents");
  for (const auto& extent : *shape) {
    result.shape.push_back(whole(extent, max_values, "an extent"));
    if (result.values() > max_values)
      throw std::runtime_error("its column " + result.name + " has more than " + std::to_string(max_values) +
                               " values");
  }
  return result;
}

} // namespace

std::uint64_t column::values() const {
  std::uint64_t result = 1;
  for (auto extent : shape)
    if (__builtin_mul_overflow(result, static_cast<std::uint64_t>(extent), &result))
      return UINT64_MAX;
  return result;
}

std::uint64_t column_layout::sample_bytes() const {
  auto result = targets.values() * targets.bytes;
  for (const auto& x : inputs)
    result += x.values() * x.bytes;
  return result;
}

column_layout parse_columns(std::string_view text) {
  json::error_code error;
  const auto root = json::parse(text, error, {}, {.max_depth = 8});
  if (error || !root.is_object())
    throw std::runtime_error("is no JSON object");
  const auto& object = root.get_object();
  const auto* format = member(object, "format").if_string();
  if (!format || *format != "parcae.samples")
    throw std::runtime_error("is not what parcae_model.export_dataset writes");
  if (whole(member(object, "version"), 1'000'000, "the version") != 1)
    throw std::runtime_error("is of another version of the format; export the data with this build's parcae_model");
  column_layout result;
  result.samples = static_cast<std::uint64_t>(whole(member(object, "samples"), std::int64_t{1} << 40, "\"samples\""));
  const auto* inputs = member(object, "inputs").if_array();
  if (!inputs || inputs->empty() || inputs->size() > 100)
    throw std::runtime_error("has no list of 1 to 100 inputs");
  for (const auto& x : *inputs)
    result.inputs.push_back(column_of(x));
  result.targets = column_of(member(object, "targets"));
  return result;
}

} // namespace parcae
