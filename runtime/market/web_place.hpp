#pragma once

// Where a feed or a hook is asked over HTTP, for a thread that may wait.

#include "protocols/http/http_client.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace parcae {

/// One URL. Not thread-safe: but for its making it is one thread's.
class web_place {
public:
  /// `authorities`: a PEM file, what certificates are checked against; empty: the system's. Throws std::runtime_error:
  /// no URL, or a file that cannot be read.
  web_place(const std::string& url, const std::filesystem::path& authorities);

  /// The body of a 200, or one line that says why there is none. GET without a body, else POST of JSON. A stop ends it
  /// within milliseconds, and this object with it.
  tl::expected<std::string, std::string> ask(const std::string& body, const http_limits& limits,
                                             const std::stop_token& stop);

private:
  http_url url_;
  http_trust trust_;
  std::unique_ptr<http_client> client_; ///< null: not connected
};

/// For messages: without the query, which may have a secret.
std::string shown_url(const std::string& url);

} // namespace parcae
