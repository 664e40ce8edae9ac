#pragma once

// JSON from files that are not believed: each error is a parse_error that names the line, or the key with the path to
// it. Pure.

#include "planner/cost/profile.hpp"

#include <boost/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace parcae {

/// Throws parse_error with the line of what is no JSON.
boost::json::value parse_json(std::string_view text);

/// A value with the path that led to it, for messages. The value must outlive it.
class json_reader {
public:
  json_reader(const boost::json::value& value, std::string path) : value_(value), path_(std::move(path)) {}

  json_reader operator[](const char* key) const;
  bool has(const char* key) const; ///< false also if it is null

  double number(double least = 0, double most = 1e18) const;
  double number_or(const char* key, double otherwise) const { return has(key) ? (*this)[key].number() : otherwise; }
  std::uint32_t count(std::uint32_t least = 0) const; ///< up to 1e9
  std::string text() const;

  template <class F>
  void each(F f) const {
    const auto& array = list();
    for (std::size_t i = 0; i < array.size(); ++i)
      f(json_reader(array[i], path_ + "[" + std::to_string(i) + "]"));
  }

  /// Calls f(key as a number, value).
  template <class F>
  void each_number(F f) const {
    for (const auto& [key, value] : object())
      f(numbered(key), json_reader(value, path_ + "." + std::string(key)));
  }

  [[noreturn]] void fail(const std::string& what) const;

private:
  const boost::json::array& list() const;
  const boost::json::object& object() const;
  std::uint32_t numbered(boost::json::string_view key) const;

  const boost::json::value& value_;
  std::string path_;
};

} // namespace parcae
