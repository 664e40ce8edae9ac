#include "protocols/store/aws_signature.hpp"

#include "protocols/base/digest.hpp"
#include "protocols/http/http.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <stdexcept>

namespace parcae {

namespace {

constexpr std::string_view algorithm = "AWS4-HMAC-SHA256";

/// Names in lower case, values without spaces at their ends, and single ones within.
word_pairs canonical_headers(word_pairs headers) {
  for (auto& [name, value] : headers) {
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    value.erase(std::unique(value.begin(), value.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
                value.end());
    value.erase(0, value.find_first_not_of(' '));
    value.erase(value.find_last_not_of(' ') + 1);
  }
  std::ranges::sort(headers);
  return headers;
}

std::string time_as(const char* form, std::chrono::sys_seconds x) {
  const std::time_t time = x.time_since_epoch().count();
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 40> text{};
  return {text.data(), std::strftime(text.data(), text.size(), form, &parts)};
}

} // namespace

std::string canonical_query(const word_pairs& query) {
  word_pairs encoded;
  for (const auto& [name, value] : query)
    encoded.emplace_back(percent_encoded(name), percent_encoded(value));
  std::ranges::sort(encoded);
  std::string result;
  for (const auto& [name, value] : encoded)
    result += (result.empty() ? "" : "&") + name + "=" + value;
  return result;
}

std::string aws_time(std::chrono::sys_seconds x) {
  return time_as("%Y%m%dT%H%M%SZ", x);
}

std::string aws_authorization(const aws_request& x, const aws_credentials& by, const std::string& region,
                              const std::string& service, std::chrono::sys_seconds now) {
  std::string headers, names;
  for (const auto& [name, value] : canonical_headers(x.headers)) {
    headers += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const auto request =
      x.method + "\n" + x.path + "\n" + canonical_query(x.query) + "\n" + headers + "\n" + names + "\n" + x.payload;
  const auto day = time_as("%Y%m%d", now);
  const auto scope = day + "/" + region + "/" + service + "/aws4_request";
  const auto text = std::string(algorithm) + "\n" + aws_time(now) + "\n" + scope + "\n" + sha256_of(request);
  const auto secret = "AWS4" + by.secret;
  auto key = hmac_sha256(std::as_bytes(std::span(secret)), day);
  for (const auto* part : {&region, &service})
    key = hmac_sha256(key, *part);
  key = hmac_sha256(key, "aws4_request");
  return std::string(algorithm) + " Credential=" + by.key_id + "/" + scope + ", SignedHeaders=" + names +
         ", Signature=" + hexadecimal(hmac_sha256(key, text));
}

std::string md5_of(std::span<const std::byte> bytes) {
  std::array<std::byte, 16> result{};
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(result.data()), nullptr, EVP_md5(),
                 nullptr) != 1)
    throw std::runtime_error("OpenSSL cannot compute MD5, which S3 needs");
  return to_base64(result);
}

} // namespace parcae
