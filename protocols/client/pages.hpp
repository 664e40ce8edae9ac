#pragma once

// A status in pages, as a reply has a limit and a cluster has none: first the jobs, then the instances, as many as fit.
// What one page has is of one moment; the next is of a later one. Plain code.

#include "protocols/client/client.hpp"

#include <optional>
#include <vector>

namespace parcae {

/// A reply's bytes: of all that there is (jobs by number, instances by name and life) what was asked for and fits into
/// `limit` bytes. A job that does not fit by itself is told without its details.
std::vector<char> page_of(status_reply all, const status_request& asked,
                          std::size_t limit = client_message_limit_bytes);

/// What to ask for after that page; nothing: it was the last, or leads nowhere.
std::optional<status_request> rest_of(status_request asked, const status_reply& page);

/// Puts a later page behind the first.
void add_page(status_reply& to, status_reply page);

} // namespace parcae
