#pragma once

// What S3 answers, and what it means. Pure: no network. Bytes from elsewhere are read to the end or refused, whatever
// they are: no more than 4 MiB, no entities but XML's own, names of at most 1024 bytes.

#include "protocols/store/store.hpp"

#include <tl/expected.hpp>

#include <optional>

namespace parcae {

/// Why a request failed, as S3 says it.
struct s3_refusal {
  std::string code;    ///< "NoSuchKey"; empty: it does not say
  std::string message; ///< one short line for people
};

/// An answer that is none, or of which nothing can be read, has an empty code.
s3_refusal read_refusal(const std::string& xml);

/// Whether an answer that says 200 is an error all the same, as that of CompleteMultipartUpload can be.
bool is_refusal(const std::string& xml);

struct s3_listing {
  std::vector<stored_object> objects; ///< names whole, as keys
  std::vector<std::string> prefixes;  ///< whole, with the / at their ends
  std::string next;                   ///< the token of the next part; empty: this is the last
};

tl::expected<s3_listing, std::string> read_listing(const std::string& xml);

struct s3_unfinished {
  std::string key;
  std::string upload;
};

struct s3_unfinished_list {
  std::vector<s3_unfinished> uploads;
  std::string next_key, next_upload; ///< markers of the next part; empty: this is the last
};

tl::expected<s3_unfinished_list, std::string> read_unfinished(const std::string& xml);

tl::expected<std::string, std::string> read_upload_id(const std::string& xml);

/// The size of all of an object in "bytes 0-9/1234".
std::optional<std::uint64_t> size_in_content_range(std::string_view text);

/// What to do about a status that is no success.
enum class s3_remedy : std::uint8_t {
  none,        ///< it is as it is
  again,       ///< it may pass
  clock,       ///< our clock is wrong: again with the server's
  credentials, ///< ours are over: again with others
};

s3_remedy remedy_of(unsigned status, const s3_refusal& x);

} // namespace parcae
