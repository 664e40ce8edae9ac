#pragma once

// Who signs requests to S3: from the environment, a file, or the instance's role; never logged.

#include "protocols/base/locks.hpp"
#include "protocols/store/store.hpp"

#include <tl/expected.hpp>

#include <optional>

namespace parcae {

struct aws_credentials {
  std::string key_id;
  std::string secret;
  std::string token{};                           ///< of a session; empty: for ever
  std::optional<std::chrono::sys_seconds> end{}; ///< none: unknown, or never
};

/// What a file in AWS's form ("[profile]", "key = value") says of a profile, by key; empty: it is not there.
std::string value_in_profile(std::string_view file, std::string_view profile, std::string_view key);

/// The metadata server's answer on a role. Text that a request can carry; else one line on what is wrong.
tl::expected<aws_credentials, std::string> read_role_credentials(const std::string& json);

/// Finds them when they are first needed, and again five minutes before they end. From any thread.
class credential_source {
public:
  explicit credential_source(store_options options) : options_(std::move(options)) {}

  /// Throws store_error: there are none.
  aws_credentials get();

  /// A server refused these: what is read next must be newer. False: they have just been read.
  bool refuse(const aws_credentials& x);

private:
  const store_options options_;
  mutex mutex_;
  std::optional<aws_credentials> known_ GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point read_ GUARDED_BY(mutex_); ///< when they were
};

/// The region that AWS's tools would take. For people without one "us-east-1".
std::string usual_region();

/// The value of an environment variable; empty: it is not set.
std::string environment(const char* name);

} // namespace parcae
