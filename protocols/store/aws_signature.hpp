#pragma once

// AWS Signature Version 4 in the header Authorization ("Signature Calculations for the Authorization Header:
// Transferring Payload in a Single Chunk", Amazon S3 API Reference). Pure.

#include "protocols/store/aws_credentials.hpp"

#include <span>
#include <utility>

namespace parcae {

using word_pairs = std::vector<std::pair<std::string, std::string>>;

struct aws_request {
  std::string method;
  std::string path;     ///< encoded, as it is sent
  word_pairs query{};   ///< not encoded
  word_pairs headers{}; ///< all that are to be signed, Host among them
  std::string payload;  ///< SHA-256 of the body in hexadecimal, or "UNSIGNED-PAYLOAD"
};

/// "max-keys=2&prefix=J": encoded and sorted, as it is sent and signed.
std::string canonical_query(const word_pairs& query);

/// "20130524T000000Z", for the header X-Amz-Date.
std::string aws_time(std::chrono::sys_seconds x);

/// The value of the header Authorization. One of the headers is X-Amz-Date.
std::string aws_authorization(const aws_request& x, const aws_credentials& by, const std::string& region,
                              const std::string& service, std::chrono::sys_seconds now);

std::string md5_of(std::span<const std::byte> bytes); ///< in base64, as in the header Content-MD5

} // namespace parcae
