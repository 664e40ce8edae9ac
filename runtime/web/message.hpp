#pragma once

// A request and its answer as plain values, whatever they came by.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae {

/// What a request is answered with instead: a status and one line.
class web_error : public std::runtime_error {
public:
  web_error(unsigned status, const std::string& line) : std::runtime_error(line), status(status) {}
  unsigned status;
};

struct web_target {
  std::vector<std::string> path; ///< names between slashes, decoded
  std::multimap<std::string, std::string> query;

  /// The first of that name; empty: there is none.
  std::string_view value(const std::string& name) const;
  bool has(const std::string& name) const { return query.contains(name); }
};

/// "/a/b?c=d". Throws web_error: it is no path, is not encoded as it must be, or leads out of where it is.
web_target parse_web_target(std::string_view text);

/// A whole number, digits only. Throws web_error that names `what`.
std::uint64_t parse_number(std::string_view text, const std::string& what, std::uint64_t most = 1'000'000'000);

/// What is known before the body is read.
struct web_head {
  std::string method{};
  std::string target{};
  std::string host{};
  std::string origin{};     ///< of the page that asks; empty: none does
  std::string fetch_site{}; ///< Sec-Fetch-Site
  std::string authorization{};
  std::string type{};          ///< of the body
  std::string last_event_id{}; ///< of a reader of events that comes back
};

struct events_wanted {
  std::string after;       ///< Last-Event-ID
  std::uint64_t job = 0;   ///< 0: of all
  std::size_t cluster = 0; ///< which of those that are shown
};

inline constexpr const char* event_stream = "text/event-stream";

/// A file that is sent, and gone with this.
class web_file {
public:
  /// Opens it and takes its name away. Throws std::system_error.
  explicit web_file(const std::filesystem::path& path);
  ~web_file();
  web_file(const web_file&) = delete;
  web_file& operator=(const web_file&) = delete;

  int descriptor() const { return descriptor_; }

private:
  int descriptor_;
};

struct web_answer {
  unsigned status = 200;
  std::string type = "application/json";
  std::shared_ptr<const std::string> body;
  std::optional<events_wanted> events;  ///< instead of a body
  std::shared_ptr<const web_file> file; ///< likewise
  std::vector<std::pair<std::string, std::string>> headers{};
};

web_answer answer_of(std::string json, unsigned status = 200);
web_answer answer_of(const web_error& x);

} // namespace parcae
