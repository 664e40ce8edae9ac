#pragma once

#include "protocols/store/store.hpp"

namespace parcae {

/// "s3://BUCKET/PREFIX". Throws store_error.
std::shared_ptr<object_store> open_s3_store(const std::string& place, const store_options& options);

/// "s3://BUCKET/KEY". Throws store_error.
std::unique_ptr<object_reader> open_s3_object(const std::string& place, const store_options& options);

} // namespace parcae
