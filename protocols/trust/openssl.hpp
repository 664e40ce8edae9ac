#pragma once

// OpenSSL's objects, owned. For the sources of this room.

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace parcae {

template <auto Free>
struct openssl_free {
  template <class T>
  void operator()(T* x) const {
    Free(x);
  }
};
template <class T, auto Free>
using openssl_ptr = std::unique_ptr<T, openssl_free<Free>>;

using bio_ptr = openssl_ptr<BIO, BIO_free_all>;
using key_ptr = openssl_ptr<EVP_PKEY, EVP_PKEY_free>;
using certificate_ptr = openssl_ptr<X509, X509_free>;
using revocation_ptr = openssl_ptr<X509_CRL, X509_CRL_free>;
using store_ptr = openssl_ptr<X509_STORE, X509_STORE_free>;
using store_context_ptr = openssl_ptr<X509_STORE_CTX, X509_STORE_CTX_free>;
using number_ptr = openssl_ptr<BIGNUM, BN_free>;

/// Throws std::runtime_error: what could not be done, and OpenSSL's own word on it.
[[noreturn]] inline void openssl_failed(const std::string& what) {
  const auto code = ERR_get_error();
  ERR_clear_error();
  const char* why = code == 0 ? nullptr : ERR_reason_error_string(code);
  throw std::runtime_error(what + (why ? " (" + std::string(why) + ")" : std::string()));
}

inline void require(bool good, const std::string& what) {
  if (!good)
    openssl_failed(what);
}

/// For reading; `text` must outlive it.
inline bio_ptr bio_of(std::string_view text) {
  return bio_ptr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

inline std::string to_string(BIO* x) {
  char* data = nullptr;
  const auto size = BIO_get_mem_data(x, &data);
  return {data, static_cast<std::size_t>(size)};
}

/// In hexadecimal.
inline std::string to_string(const ASN1_INTEGER* x) {
  const number_ptr number(ASN1_INTEGER_to_BN(x, nullptr));
  const openssl_ptr<char, [](char* p) { OPENSSL_free(p); }> text(BN_bn2hex(number.get()));
  return text.get();
}

inline std::string serial_of(const X509* x) {
  return to_string(X509_get0_serialNumber(x));
}

inline std::tm utc_of(const ASN1_TIME* x) {
  std::tm result{};
  require(ASN1_TIME_to_tm(x, &result) == 1, "cannot read a certificate's time");
  return result;
}

} // namespace parcae
