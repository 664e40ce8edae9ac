#include "planner/market/table.hpp"

#include "planner/cost/profile.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace parcae::market {

namespace {

constexpr std::size_t max_line = 10'000;
constexpr std::size_t max_rows = 5'000'000;

[[noreturn]] void fail_at(std::size_t line, const std::string& what) {
  throw parse_error("line " + std::to_string(line) + ": " + what);
}

// The next line that says something.
class lines {
public:
  explicit lines(std::string_view text) : text_(text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text) {}

  std::optional<std::string_view> next() {
    while (!text_.empty()) {
      ++line_;
      const auto end = text_.find('\n');
      auto result = text_.substr(0, end);
      text_ = end == std::string_view::npos ? std::string_view{} : text_.substr(end + 1);
      if (result.ends_with('\r'))
        result.remove_suffix(1);
      if (result.size() > max_line)
        fail_at(line_, "is longer than " + std::to_string(max_line) + " characters");
      if (result.find_first_not_of(" \t") != std::string_view::npos && result[0] != '#')
        return result;
    }
    return {};
  }

  std::size_t line() const { return line_; }

private:
  std::string_view text_;
  std::size_t line_ = 0;
};

std::string trimmed(std::string_view x) {
  const auto first = x.find_first_not_of(" \t");
  return first == std::string_view::npos ? "" : std::string(x.substr(first, x.find_last_not_of(" \t") - first + 1));
}

std::vector<std::string> fields_of(std::string_view text, std::size_t line) {
  std::vector<std::string> result;
  for (std::size_t at = 0;;) {
    if (at >= text.size() || text[at] != '"') {
      const auto comma = text.find(',', at);
      result.push_back(trimmed(text.substr(std::min(at, text.size()), comma - at)));
      if (comma == std::string_view::npos)
        return result;
      at = comma + 1;
      continue;
    }
    std::string field;
    for (++at;; ++at) {
      if (at >= text.size())
        fail_at(line, "a quoted field has no end; it must be within the line");
      if (text[at] == '"' && (at + 1 >= text.size() || text[at + 1] != '"'))
        break;
      at += text[at] == '"' ? 1 : 0;
      field += text[at];
    }
    result.push_back(std::move(field));
    if (++at >= text.size())
      return result;
    if (text[at++] != ',')
      fail_at(line, "a comma must follow a quoted field");
  }
}

template <class T>
std::optional<T> value_of(const std::string& text) {
  T result{};
  const auto* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, result);
  return error == std::errc() && rest == end ? std::optional(result) : std::nullopt;
}

std::string written(double x) {
  return text_of_quantity(x);
}

} // namespace

std::vector<std::string> table::header(std::string_view text) {
  lines all(text);
  const auto first = all.next();
  return first ? fields_of(*first, all.line()) : std::vector<std::string>{};
}

table::table(std::string_view text, std::vector<std::string> columns, bool has_header) : columns_(std::move(columns)) {
  lines all(text);
  auto there = columns_;
  if (has_header) {
    const auto first = all.next();
    if (!first)
      throw parse_error("is empty, must begin with the names of its columns");
    there = fields_of(*first, all.line());
  }
  std::vector<std::size_t> places;
  for (const auto& name : columns_) {
    const auto found = std::ranges::find(there, name);
    if (found == there.end())
      fail_at(all.line(), "has no column \"" + name + "\"; the first line must name the columns");
    places.push_back(static_cast<std::size_t>(found - there.begin()));
  }
  while (const auto content = all.next()) {
    auto fields = fields_of(*content, all.line());
    if (fields.size() > there.size())
      fail_at(all.line(), "has " + std::to_string(fields.size()) + " fields, must be " + std::to_string(there.size()));
    if (rows_.size() == max_rows)
      fail_at(all.line(), "is one row more than " + std::to_string(max_rows));
    fields.resize(there.size());
    row x;
    x.of_ = this;
    x.line_ = all.line();
    for (const auto place : places)
      x.fields_.push_back(fields[place]);
    rows_.push_back(std::move(x));
  }
}

void table::row::fail(const std::string& what) const {
  fail_at(line_, what);
}

double table::row::number(std::size_t column, double least, double most) const {
  const auto result = value_of<double>(fields_[column]);
  if (!result || !std::isfinite(*result) || *result < least || *result > most)
    fail(of_->columns_[column] + " is \"" + printable(fields_[column].substr(0, 40)) + "\", must be a number from " +
         written(least) + " to " + written(most));
  return *result;
}

std::uint64_t table::row::whole(std::size_t column, std::uint64_t most) const {
  const auto result = value_of<std::uint64_t>(fields_[column]);
  if (!result || *result > most)
    fail(of_->columns_[column] + " is \"" + printable(fields_[column].substr(0, 40)) +
         "\", must be a whole number from 0 to " + std::to_string(most));
  return *result;
}

} // namespace parcae::market
