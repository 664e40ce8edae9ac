#pragma once

// Tables as CSV with a header, columns by name, fields in quotes where they need to be. Nothing in them is believed:
// every error is a parse_error that names line and column. Pure.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parcae::market {

class table {
public:
  class row {
  public:
    std::size_t line() const { return line_; }

    // By place among the columns asked for.
    const std::string& text(std::size_t column) const { return fields_[column]; }
    bool is_empty(std::size_t column) const { return fields_[column].empty(); }
    double number(std::size_t column, double least, double most) const;
    std::uint64_t whole(std::size_t column, std::uint64_t most) const;

    [[noreturn]] void fail(const std::string& what) const;

  private:
    friend table;
    const table* of_ = nullptr;
    std::size_t line_ = 0;
    std::vector<std::string> fields_; ///< those asked for
  };

  /// Needs these columns, in any order among others; without a header just these, in this order. A missing field at
  /// the end of a line is empty.
  table(std::string_view text, std::vector<std::string> columns, bool has_header = true);
  table(const table&) = delete;
  table& operator=(const table&) = delete;

  const std::vector<row>& rows() const { return rows_; }

  /// Those of a file's first line that says something.
  static std::vector<std::string> header(std::string_view text);

private:
  std::vector<std::string> columns_;
  std::vector<row> rows_;
};

/// US-dollars an hour: above 0, below this.
inline constexpr double max_usd_per_h = 1e5;

} // namespace parcae::market
