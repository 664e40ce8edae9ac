#pragma once

#include "protocols/store/s3_client.hpp"

namespace parcae {

/// An object on its way to S3. One that fits into a part is one request; else a multipart upload, with some parts on
/// their way while the next is written, each on a thread of its own.
std::unique_ptr<object_writer> begin_upload(std::shared_ptr<s3_client> client, const std::string& key,
                                            std::uint64_t bytes);

/// Gives up uploads whose keys begin with `prefix`, and are `ours` by their last part. Throws store_error.
void give_up_uploads(s3_client& client, const std::string& prefix,
                     const std::function<bool(std::string_view name)>& ours);

} // namespace parcae
