#pragma once

// Which URLs a process asks on behalf of jobs.

#include <filesystem>
#include <string>
#include <vector>

namespace parcae {

/// Whether a URL is one of `places`, or below one: "https://HOST/PATH", "s3://BUCKET", or a whole scheme, such as
/// "http://". None: a person asks for himself, and may ask anybody. A path may not lead out of where it seems to be (a
/// part that is .., also encoded). Throws store_error if it is not allowed. Returns whether it was for its host's sake:
/// then that may be this machine, or on its link, whose services (a cloud's credentials, say) trust everybody.
bool require_allowed(const std::string& url, const std::vector<std::filesystem::path>& places);

/// Whether a server that a job names (its checkpoint.endpoint) is named by the user of this process as well, in
/// `places` or in the environment, or there are no places; else it may not be this machine, or on its link.
bool is_named(const std::string& server, const std::vector<std::filesystem::path>& places);

} // namespace parcae
