#pragma once

// Digests, and bytes as text.

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace parcae {

/// SHA-256 of bytes that come in pieces; one thread. Throws std::runtime_error if the library cannot.
class sha256 {
public:
  sha256();
  void add(std::string_view bytes);
  void add(std::span<const std::byte> bytes);
  std::string hexadecimal(); ///< once, at the end

private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

/// SHA-256 in hexadecimal. Throws likewise.
std::string sha256_of(std::span<const std::byte> bytes);
std::string sha256_of(std::string_view bytes);

/// RFC 2104. Throws likewise.
std::array<std::byte, 32> hmac_sha256(std::span<const std::byte> key, std::string_view text);

/// Two small digits for each byte.
std::string hexadecimal(std::span<const std::byte> bytes);

/// Whether there is nothing but such digits.
bool is_hexadecimal(std::string_view text);

/// RFC 4648, with padding.
std::string to_base64(std::span<const std::byte> bytes);
std::string to_base64(std::string_view bytes);

/// None: it is not in base64.
std::optional<std::string> from_base64(std::string_view text);

} // namespace parcae
