#include "protocols/base/digest.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace parcae {

sha256::sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("SHA-256 is not available");
}

void sha256::add(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

void sha256::add(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string sha256::hexadecimal() {
  std::array<std::byte, 32> digest{};
  EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return parcae::hexadecimal(digest);
}

std::string sha256_of(std::span<const std::byte> bytes) {
  sha256 digest;
  digest.add(bytes);
  return digest.hexadecimal();
}

std::string sha256_of(std::string_view bytes) {
  return sha256_of(std::as_bytes(std::span(bytes)));
}

std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::string_view text) {
  // OpenSSL looks algorithms up by name, which takes longer than what follows: once a thread.
  thread_local const auto context = [] {
    const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr), EVP_MAC_free);
    std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> made(EVP_MAC_CTX_new(mac.get()), EVP_MAC_CTX_free);
    std::string digest = "SHA256";
    const std::array<OSSL_PARAM, 2> options{
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), digest.size()),
        OSSL_PARAM_construct_end()};
    if (!made || EVP_MAC_CTX_set_params(made.get(), options.data()) != 1)
      throw std::runtime_error("HMAC-SHA256 is not available");
    return made;
  }();
  std::array<std::byte, 32> result{};
  std::size_t size = 0;
  if (EVP_MAC_init(context.get(), reinterpret_cast<const unsigned char*>(key.data()), key.size(), nullptr) != 1 ||
      EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(text.data()), text.size()) != 1 ||
      EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(result.data()), &size, result.size()) != 1 ||
      size != result.size())
    throw std::runtime_error("HMAC-SHA256 cannot be computed");
  return result;
}

namespace {
constexpr std::string_view digits = "0123456789abcdef";
}

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of(digits) == text.npos;
}

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string result;
  for (const auto x : bytes)
    result += {digits[std::to_integer<unsigned>(x) >> 4], digits[std::to_integer<unsigned>(x) & 15]};
  return result;
}

std::string to_base64(std::span<const std::byte> bytes) {
  std::string result((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const auto* from = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(result.data()), from, static_cast<int>(bytes.size()));
  result.resize(static_cast<std::size_t>(size));
  return result;
}

std::string to_base64(std::string_view bytes) {
  return to_base64(std::as_bytes(std::span(bytes)));
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string result(text.size() / 4 * 3 + 1, '\0');
  const auto* from = reinterpret_cast<const unsigned char*>(text.data());
  const auto size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(result.data()), from, static_cast<int>(text.size()));
  const auto padding = text.size() - std::min(text.find('='), text.size());
  if (size < 0 || text.size() % 4 != 0 || padding > 2)
    return std::nullopt;
  result.resize(static_cast<std::size_t>(size) - padding);
  return result;
}

} // namespace parcae
