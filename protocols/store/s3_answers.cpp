#include "protocols/store/s3_answers.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/http/http.hpp"
#include "protocols/store/retry.hpp"

#include <pugixml.hpp>

#include <algorithm>
#include <charconv>

namespace parcae {

namespace {

constexpr std::size_t max_xml = 4 << 20;
constexpr std::size_t max_name = 1024; // S3's own limit of keys, bytes
constexpr std::size_t max_mark = 4096; // of tokens and upload ids

/// The outermost element of that name, or nothing.
pugi::xml_node root_of(pugi::xml_document& to, const std::string& xml, std::string_view name) {
  if (xml.size() > max_xml || !to.load_buffer(xml.data(), xml.size()))
    return {};
  const auto root = to.document_element();
  return root.name() == name ? root : pugi::xml_node();
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t result = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (text.empty() || bad != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return result;
}

/// A key or a prefix; empty: it is none that can be.
std::string name_in(const char* text) {
  const std::string_view x = text;
  return x.size() > max_name ? std::string() : std::string(x);
}

/// The clock's beginning if it is no time, or one that the clock, which counts nanoseconds in 64 bits, cannot say.
std::chrono::system_clock::time_point clock_time_in(const char* text) {
  using clock_time = std::chrono::system_clock::time_point;
  constexpr auto first = std::chrono::ceil<std::chrono::seconds>(clock_time::min());
  constexpr auto last = std::chrono::floor<std::chrono::seconds>(clock_time::max());
  const auto x = parse_web_time(text);
  return x && *x >= first && *x <= last ? clock_time(*x) : clock_time();
}

} // namespace

s3_refusal read_refusal(const std::string& xml) {
  pugi::xml_document document;
  const auto root = root_of(document, xml, "Error");
  return {printable(root.child_value("Code"), 100), printable(root.child_value("Message"), 200)};
}

bool is_refusal(const std::string& xml) {
  pugi::xml_document document;
  return static_cast<bool>(root_of(document, xml, "Error"));
}

tl::expected<s3_listing, std::string> read_listing(const std::string& xml) {
  pugi::xml_document document;
  const auto root = root_of(document, xml, "ListBucketResult");
  if (!root)
    return tl::unexpected(std::string("its list of objects is none"));
  s3_listing result;
  for (const auto node : root.children("Contents")) {
    stored_object x{name_in(node.child_value("Key"))};
    const auto bytes = number_in(node.child_value("Size"));
    if (x.name.empty() || !bytes)
      return tl::unexpected(std::string("its list has an object without name or size"));
    x.bytes = *bytes;
    x.written = clock_time_in(node.child_value("LastModified"));
    result.objects.push_back(std::move(x));
  }
  for (const auto node : root.children("CommonPrefixes"))
    if (auto prefix = name_in(node.child_value("Prefix")); !prefix.empty())
      result.prefixes.push_back(std::move(prefix));
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    result.next = root.child_value("NextContinuationToken");
    if (result.next.empty() || result.next.size() > max_mark)
      return tl::unexpected(std::string("its list ends before its end"));
  }
  return result;
}

tl::expected<s3_unfinished_list, std::string> read_unfinished(const std::string& xml) {
  pugi::xml_document document;
  const auto root = root_of(document, xml, "ListMultipartUploadsResult");
  if (!root)
    return tl::unexpected(std::string("its list of uploads is none"));
  s3_unfinished_list result;
  for (const auto node : root.children("Upload")) {
    s3_unfinished x{name_in(node.child_value("Key")), node.child_value("UploadId")};
    if (x.key.empty() || x.upload.empty() || x.upload.size() > max_mark)
      return tl::unexpected(std::string("its list has an upload without name or id"));
    result.uploads.push_back(std::move(x));
  }
  if (std::string_view(root.child_value("IsTruncated")) == "true") {
    result.next_key = name_in(root.child_value("NextKeyMarker"));
    result.next_upload = root.child_value("NextUploadIdMarker");
    if (result.next_key.empty() || result.next_upload.size() > max_mark)
      return tl::unexpected(std::string("its list of uploads ends before its end"));
  }
  return result;
}

tl::expected<std::string, std::string> read_upload_id(const std::string& xml) {
  pugi::xml_document document;
  const std::string result = root_of(document, xml, "InitiateMultipartUploadResult").child_value("UploadId");
  if (result.empty() || result.size() > max_mark)
    return tl::unexpected(std::string("it began an upload without an id"));
  return result;
}

std::optional<std::uint64_t> size_in_content_range(std::string_view text) {
  const auto slash = text.rfind('/');
  return text.starts_with("bytes ") && slash != text.npos ? number_in(text.substr(slash + 1)) : std::nullopt;
}

s3_remedy remedy_of(unsigned status, const s3_refusal& x) {
  if (x.code == "RequestTimeTooSkewed")
    return s3_remedy::clock;
  if (x.code == "ExpiredToken" || x.code == "TokenRefreshRequired" || x.code == "InvalidToken" ||
      x.code == "ExpiredTokenException" || x.code == "InvalidAccessKeyId" || x.code == "SignatureDoesNotMatch")
    return s3_remedy::credentials;
  if (x.code.empty() && (status == 400 || status == 403)) // of HEAD, which has no body to say why
    return s3_remedy::credentials;
  // 409: somebody else writes that name at this moment. A part that was cut short, or that came damaged, is sent again.
  if (may_pass(status) || status == 409 || x.code == "RequestTimeout" || x.code == "SlowDown" ||
      x.code == "BadDigest" || x.code == "IncompleteBody" || x.code == "XAmzContentSHA256Mismatch")
    return s3_remedy::again;
  return s3_remedy::none;
}

} // namespace parcae
