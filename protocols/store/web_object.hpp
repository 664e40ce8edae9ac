#pragma once

#include "protocols/store/store.hpp"

namespace parcae {

/// "https://…" or "http://…". Throws store_error.
std::unique_ptr<object_reader> open_web_object(const std::string& url, const store_options& options);

} // namespace parcae
