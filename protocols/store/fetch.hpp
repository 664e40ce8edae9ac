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
/// if this machine's disk cannot hold it, or the URL is not allowed (options.store.places).
std::filesystem::path fetch(const std::string& url, const fetch_options& options = {});

/// What fetch() returned here last, if it is still there, without asking; else as fetch(). Allowed as there.
std::filesystem::path fetched(const std::string& url, const fetch_options& options = {});

/// A name beside a URL: of …/a.json and "b" …/b.
std::string beside(const std::string& url, const std::string& name);

/// Where copies are: $PARCAE_CACHE/fetched, by default $XDG_CACHE_HOME/parcae/fetched or ~/.cache/parcae/fetched, for
/// this user alone. Nothing else deletes them. Throws store_error: none of these is set.
std::filesystem::path fetch_folder();

} // namespace parcae
