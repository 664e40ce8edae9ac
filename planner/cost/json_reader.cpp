#include "planner/cost/json_reader.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

namespace parcae {

namespace json = boost::json;

json_reader json_reader::operator[](const char* key) const {
  const auto* object = value_.if_object();
  const auto* found = object ? object->if_contains(key) : nullptr;
  if (!found)
    fail(std::string("lacks the key \"") + key + "\"");
  return {*found, path_.empty() ? key : path_ + "." + key};
}

bool json_reader::has(const char* key) const {
  const auto* found = object().if_contains(key);
  return found && !found->is_null();
}

double json_reader::number(double least, double most) const {
  double x = std::numeric_limits<double>::quiet_NaN();
  if (value_.is_double())
    x = value_.get_double();
  else if (value_.is_int64())
    x = static_cast<double>(value_.get_int64());
  else if (value_.is_uint64())
    x = static_cast<double>(value_.get_uint64());
  if (!std::isfinite(x) || x < least || x > most) {
    std::ostringstream text;
    text << "must be a number from " << least << " to " << most;
    fail(text.str());
  }
  return x;
}

std::uint32_t json_reader::count(std::uint32_t least) const {
  const double x = number(least, 1e9);
  if (x != std::floor(x))
    fail("must be a whole number");
  return static_cast<std::uint32_t>(x);
}

std::string json_reader::text() const {
  if (!value_.is_string())
    fail("must be a string");
  return std::string(value_.get_string());
}

void json_reader::fail(const std::string& what) const {
  throw parse_error((path_.empty() ? "the document" : path_) + " " + what);
}

const json::array& json_reader::list() const {
  const auto* array = value_.if_array();
  if (!array)
    fail("must be a list");
  if (array->size() > 100'000)
    fail("has too many elements");
  return *array;
}

const json::object& json_reader::object() const {
  const auto* object = value_.if_object();
  if (!object)
    fail("must be an object");
  return *object;
}

std::uint32_t json_reader::numbered(json::string_view key) const {
  if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != json::string_view::npos ||
      (key.front() == '0' && key.size() > 1))
    fail("has the key \"" + std::string(key) + "\", which is no number");
  return static_cast<std::uint32_t>(std::stoul(std::string(key)));
}

json::value parse_json(std::string_view text) {
  json::stream_parser parser;
  json::error_code error;
  std::size_t used = 0;
  // write_some tells how far it got, which gives the line.
  used = parser.write_some(text.data(), text.size(), error);
  if (!error && used < text.size() && text.find_first_not_of(" \t\r\n", used) != std::string_view::npos)
    error = json::error::extra_data;
  if (!error)
    parser.finish(error);
  if (error) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(used), '\n');
    throw parse_error("line " + std::to_string(line) + ": not JSON: " + error.message());
  }
  return parser.release();
}

} // namespace parcae
