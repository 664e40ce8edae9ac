#pragma once

// What a job names by URL, as files of this machine: a folder of the user's cache has a copy, whole, of what is there
// now. Waits, but never without a limit, as all of this room does; any thread.

#include "protocols/store/store.hpp"

#include <functional>

namespace parcae {

struct fetch_options {
  std::function<bool(std::string_view name)> wanted{}; ///< of a prefix; empty: all below it
  store_options store{};
};

/// The file that holds the object at a URL (s3://, https://, http://), or of an s3:// prefix the folder that holds all
/// objects below it. Asks each time whether the copy is of what is there, and copies only if it is not: a file is known
/// by URL, size and ETag, a folder by names, sizes and times. An object that is replaced thus becomes another file; one
/// that somebody reads stays. Of several processes each copies for itself, and one copy stays. Throws store_error, also
/// if this machine's disk cannot hold it.
std::filesystem::path fetch(const std::string& url, const fetch_options& options = {});

/// What fetch() returned here last, if it is still there, without asking; else as fetch().
std::filesystem::path fetched(const std::string& url, const fetch_options& options = {});

/// A name beside a URL: of …/a.json and "b" …/b.
std::string beside(const std::string& url, const std::string& name);

/// Where copies are: $PARCAE_CACHE/fetched, by default ~/.cache/parcae/fetched. Nothing else deletes them.
std::filesystem::path fetch_folder();

/// Whether a URL is one of those, or below one, that this node lets jobs read: all, if there are no `places`. Throws
/// store_error.
void require_allowed(const std::string& url, const std::vector<std::filesystem::path>& places);

} // namespace parcae
