#pragma once

// Who may ask, and what: tokens, names of this server, pages of others, the pace of changes.

#include "runtime/web/message.hpp"

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

namespace parcae {

/// 32 random bytes in hexadecimal, in a file that only its owner can read; made if it is missing. Throws
/// std::runtime_error with one line: not readable, not a token, or others may read it.
std::string read_token(const std::filesystem::path& file);

/// Whether both are the same; how long it takes does not depend on what differs.
bool same_token(std::string_view x, std::string_view y);

/// Who may do what on a server.
struct web_access {
  std::string token;           ///< for all; empty: none is needed, on loopback
  std::string read_token;      ///< for those who may only look; empty: there is none
  std::set<std::string> hosts; ///< names that it is called by, besides its address
};

/// Throws web_error: the server is called by another name than its own (`local`: the numeric address that was dialled),
/// or a page from elsewhere asks.
void check_origin(const web_access& access, const web_head& head, const std::string& local);

/// "all", "look" or "nothing", by its token.
const char* allowed(const web_access& access, const web_head& head);

/// Throws web_error: no token, or one that does not allow it.
void check_token(const web_access& access, const web_head& head, bool changes);

/// Bounds requests per second; a second's number may come at once.
class pace_limit {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit pace_limit(double per_second) : per_second_(per_second), left_(per_second) {}
  bool allows(time_point now);

private:
  double per_second_, left_;
  time_point last_{};
};

} // namespace parcae
