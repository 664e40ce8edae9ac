#include "protocols/store/s3_place.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/store/aws_credentials.hpp"
#include "protocols/store/url_rules.hpp"

#include <algorithm>
#include <cctype>

namespace parcae {

namespace {

constexpr std::string_view scheme = "s3://";
constexpr std::size_t max_prefix = 512; // bytes; keys may have 1024

bool is_bucket(std::string_view x) {
  return x.size() >= 3 && x.size() <= 63 && std::isalnum(static_cast<unsigned char>(x.front())) &&
         x.find("..") == x.npos && std::ranges::all_of(x, [](unsigned char c) {
           return (std::isalnum(c) && !std::isupper(c)) || c == '-' || c == '.' || c == '_';
         });
}

bool has_odd_part(std::string_view path) {
  for (;;) {
    const auto part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == "..")
      return true;
    if (part.size() == path.size())
      return false;
    path.remove_prefix(part.size() + 1);
  }
}

bool is_region(std::string_view x) {
  return !x.empty() && x.size() <= 60 &&
         std::ranges::all_of(x, [](unsigned char c) { return std::isalnum(c) || c == '-'; });
}

} // namespace

tl::expected<s3_place, std::string> parse_s3_place(std::string_view text) {
  const auto fail = [](const char* why) { return tl::unexpected(std::string(why)); };
  if (!text.starts_with(scheme))
    return fail("must begin with s3://");
  text.remove_prefix(scheme.size());
  while (text.ends_with('/'))
    text.remove_suffix(1);
  s3_place result{std::string(text.substr(0, text.find('/'))), {}};
  if (!is_bucket(result.bucket))
    return fail("names no bucket: s3://BUCKET/PREFIX, of 3 to 63 small letters, digits, dots and hyphens");
  if (result.bucket.size() < text.size())
    result.prefix = text.substr(result.bucket.size() + 1);
  if (result.prefix.size() > max_prefix)
    return fail("has a prefix longer than 512 bytes");
  if (!result.prefix.empty() && has_odd_part(result.prefix))
    return fail("has an empty part, a . or .. in its prefix");
  if (printable(result.prefix) != result.prefix)
    return fail("has control characters, or what is no UTF-8, in its prefix");
  return result;
}

std::string s3_site::path_of(const std::string& key) const {
  return base + "/" + percent_encoded(key, true);
}

std::string problem_of_endpoint(std::string_view text) {
  const auto url = parse_http_url(text);
  if (!url)
    return url.error();
  return url->target == "/" ? "" : "must have no path: the bucket's name follows";
}

s3_site site_of(const std::string& bucket, const store_options& options) {
  const auto fail = [](const std::string& what) { return store_error(store_trouble::unreachable, what); };
  s3_site result;
  result.bucket = bucket;
  result.region = options.region.empty() ? usual_region() : options.region;
  if (!is_region(result.region))
    throw fail("\"" + printable(result.region, 60) + "\" is no region of S3, such as eu-central-1");
  auto endpoint = options.endpoint;
  for (const auto* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})
    if (endpoint.empty())
      endpoint = environment(name);
  if (!endpoint.empty()) {
    if (const auto problem = problem_of_endpoint(endpoint); !problem.empty())
      throw fail("the endpoint \"" + printable(endpoint, 100) + "\" " + problem);
    result.server = parse_http_url(endpoint)->server;
    result.server.elsewhere = !options.endpoint.empty() && !is_named(result.server.text(), options.places);
    result.base = "/" + bucket;
    return result;
  }
  const auto domain = "s3." + result.region + ".amazonaws.com" + (result.region.starts_with("cn-") ? ".cn" : "");
  // The certificate is for one name below the domain.
  const bool is_name = bucket.find_first_of("._") == bucket.npos;
  result.server.host = is_name ? bucket + "." + domain : domain;
  result.base = is_name ? "" : "/" + bucket;
  return result;
}

} // namespace parcae
