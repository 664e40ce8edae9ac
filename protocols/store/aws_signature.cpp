#include "protocols/store/aws_signature.hpp"

#include "protocols/http/http.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

namespace parcae {

namespace {

constexpr std::string_view algorithm = "AWS4-HMAC-SHA256";

std::string hexadecimal(std::span<const unsigned char> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (const auto x : bytes)
    result += {digits[x >> 4], digits[x & 15]};
  return result;
}

std::string digest(const EVP_MD* how, std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> result{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), result.data(), &size, how, nullptr) != 1)
    throw std::runtime_error("OpenSSL cannot compute a digest that S3 needs");
  return {reinterpret_cast<const char*>(result.data()), size};
}

std::string hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> result{};
  unsigned size = 0;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
            text.size(), result.data(), &size))
    throw std::runtime_error("OpenSSL cannot compute HMAC-SHA256");
  return {reinterpret_cast<const char*>(result.data()), size};
}

std::span<const unsigned char> bytes_of(const std::string& x) {
  return {reinterpret_cast<const unsigned char*>(x.data()), x.size()};
}

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
  const auto text = std::string(algorithm) + "\n" + aws_time(now) + "\n" + scope + "\n" +
                    sha256_of(std::as_bytes(std::span(request)));
  const auto key = hmac(hmac(hmac(hmac("AWS4" + by.secret, day), region), service), "aws4_request");
  return std::string(algorithm) + " Credential=" + by.key_id + "/" + scope + ", SignedHeaders=" + names +
         ", Signature=" + hexadecimal(bytes_of(hmac(key, text)));
}

std::string sha256_of(std::span<const std::byte> bytes) {
  return hexadecimal(bytes_of(digest(EVP_sha256(), bytes)));
}

std::string md5_of(std::span<const std::byte> bytes) {
  const auto binary = digest(EVP_md5(), bytes);
  std::array<unsigned char, 32> text{};
  const auto size = EVP_EncodeBlock(text.data(), bytes_of(binary).data(), static_cast<int>(binary.size()));
  return {reinterpret_cast<const char*>(text.data()), static_cast<std::size_t>(size)};
}

} // namespace parcae
