// Answers of S3 and of the servers of credentials: XML, JSON, headers, AWS's files.

#include "protocols/store/s3_answers.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/http/http.hpp"
#include "protocols/store/aws_credentials.hpp"
#include "protocols/store/s3_place.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace parcae {
namespace {

void check_names(const s3_listing& x, std::size_t size) {
  promise(x.objects.size() <= size && x.prefixes.size() <= size, "a list is no longer than its bytes");
  for (const auto& object : x.objects)
    promise(!object.name.empty() && object.name.size() <= 1024, "a key has 1 to 1024 bytes");
  for (const auto& prefix : x.prefixes)
    promise(!prefix.empty() && prefix.size() <= 1024, "a prefix has 1 to 1024 bytes");
}

bool is_word(const std::string& x) {
  return std::all_of(x.begin(), x.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const std::string text(as_text(data, size));
  const auto refusal = read_refusal(text);
  for (const auto& x : {refusal.code, refusal.message})
    promise(printable(x) == x && x.size() <= 210, "what a server says is one short line");
  is_refusal(text);
  remedy_of(static_cast<unsigned>(size % 600), refusal);
  if (const auto x = read_listing(text))
    check_names(*x, size);
  if (const auto x = read_unfinished(text))
    for (const auto& y : x->uploads)
      promise(!y.key.empty() && !y.upload.empty(), "an upload has a key and an id");
  if (const auto x = read_upload_id(text))
    promise(!x->empty(), "an id is not empty");
  if (const auto x = read_role_credentials(text))
    promise(!x->key_id.empty() && is_word(x->key_id) && is_word(x->secret) && is_word(x->token),
            "credentials are words");
  promise(is_word(value_in_profile(text, "default", "aws_access_key_id")), "a value is a word");
  size_in_content_range(text);
  parse_web_time(text);
  if (const auto x = parse_http_url(text)) {
    promise(is_word(x->target) && is_word(x->server.host) && !x->server.host.empty() && x->server.port != 0,
            "a URL can be asked for");
    const auto again = parse_http_url(x->server.text() + x->target);
    promise(again && again->server == x->server && again->target == x->target, "a URL is what its parts say");
  }
  if (const auto x = parse_s3_place(text))
    promise(x->bucket.size() >= 3 && x->prefix.size() <= 512 && printable(x->prefix) == x->prefix,
            "a place can be named");
  return 0;
}
