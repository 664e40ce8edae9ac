#pragma once

// Where things are in S3, and where that is asked. Pure, but for the environment.

#include "protocols/http/http.hpp"
#include "protocols/store/store.hpp"

#include <tl/expected.hpp>

namespace parcae {

/// "s3://BUCKET/PREFIX"
struct s3_place {
  std::string bucket;
  std::string prefix; ///< without / at its ends; may be empty
};

/// Else one line on what is wrong with it.
tl::expected<s3_place, std::string> parse_s3_place(std::string_view text);

/// A bucket's server, and how its objects are named there.
struct s3_site {
  http_server server;
  std::string bucket;
  std::string base; ///< what paths begin with: "/BUCKET", or nothing where the server is the bucket's own
  std::string region;

  /// Encoded. Of an empty key that of the bucket.
  std::string path_of(const std::string& key) const;
};

/// By the options, else the environment. Without an endpoint it is AWS: BUCKET.s3.REGION.amazonaws.com. A named one has
/// buckets in its paths. Throws store_error.
s3_site site_of(const std::string& bucket, const store_options& options);

/// Why it cannot be; empty: it can. "http://127.0.0.1:9000", without a path.
std::string problem_of_endpoint(std::string_view text);

} // namespace parcae
