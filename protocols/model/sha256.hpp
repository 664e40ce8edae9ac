#pragma once

// SHA-256 of bytes that come in pieces.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace parcae {

/// One digest; one thread. Throws std::runtime_error if the library cannot.
class sha256 {
public:
  sha256();
  void add(std::string_view bytes);
  void add(std::span<const std::byte> bytes);
  std::string hexadecimal(); ///< once, at the end

private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

} // namespace parcae
