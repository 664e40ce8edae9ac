#pragma once

// Requests to S3, signed, and sent again if that may help.

#include "protocols/http/http_client.hpp"
#include "protocols/store/aws_credentials.hpp"
#include "protocols/store/s3_place.hpp"

#include <atomic>

namespace parcae {

struct s3_request {
  std::string method = "GET";
  std::string key{}; ///< empty: the bucket itself
  std::vector<std::pair<std::string, std::string>> query{};
  std::vector<std::pair<std::string, std::string>> headers{};
  std::span<const std::byte> body{};
  std::span<std::byte> into{};  ///< for the body of the answer
  std::stop_token stop{};       ///< this one; beside the client's own
  std::vector<unsigned> also{}; ///< statuses that are answers, beside the successes
  bool once = false;            ///< not again, whatever comes of it
};

/// From any thread; as many connections as there are threads that ask.
class s3_client {
public:
  s3_client(s3_site site, store_options options);

  /// Throws store_error: refused, or no answer after several attempts; absent for 404. What the server did at attempts
  /// before the last is unknown.
  http_answer ask(const s3_request& x);

  const s3_site& site() const { return site_; }
  const store_options& options() const { return options_; }

private:
  http_request signed_request(const s3_request& x, const std::string& sha256, const std::string& md5,
                              const aws_credentials& by) const;
  std::unique_ptr<http_client> connection();
  void keep(std::unique_ptr<http_client> x);

  const s3_site site_;
  const store_options options_;
  credential_source credentials_;
  std::atomic<std::int64_t> clock_ahead_s_ = 0; ///< the server's, of ours
  mutex mutex_;
  http_trust trust_ GUARDED_BY(mutex_); ///< null: not needed yet
  std::vector<std::unique_ptr<http_client>> idle_ GUARDED_BY(mutex_);
};

} // namespace parcae
