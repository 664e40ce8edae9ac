#pragma once

// What a process shows to others of its cluster, and what it believes of them: a bundle, in use.

#include "protocols/trust/identity.hpp"

#include <boost/asio/ssl/context.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace parcae {

/// Immutable, but for the reference counts inside OpenSSL: any thread. Read a bundle again for what has changed.
class credentials {
public:
  /// `bundle`: a file that issue_bundle has made. A file "revoked.pem" beside it is the list of revocations; without it
  /// nothing is revoked. `before`: what this process believed until now; null: it has just started. Throws
  /// std::runtime_error with one line on what is wrong: not readable, readable by everybody, no key, key and
  /// certificate do not belong together, of another authority, not yet or no longer good, revoked, or a list that is
  /// another authority's, gone, or lacks what the bundle's own authority had revoked before.
  explicit credentials(const std::filesystem::path& bundle, const credentials* before = nullptr);

  const identity& self() const { return self_; }

  /// TLS 1.3 and nothing else, both sides with a certificate of this cluster's authority that is not revoked; nothing
  /// is resumed. For both directions.
  boost::asio::ssl::context& context() const { return context_; }

  /// The other side of a handshake that has ended well; empty if its certificate is not one of issue_bundle's.
  static std::optional<identity> peer_of(SSL* connection);

  bool revoked(const identity& x) const;

private:
  void require_all_of(const credentials& before, const std::filesystem::path& list) const;

  mutable boost::asio::ssl::context context_;
  identity self_;
  std::shared_ptr<X509_CRL> list_; ///< null: nothing is revoked
};

/// How many bytes of a connection tell how long the first message of a handshake is.
inline constexpr std::size_t hello_bytes = 9;

/// Of the first record, all in all.
std::size_t record_bytes(std::span<const unsigned char, hello_bytes> first);

/// Whether these may be the first of a handshake with an ordinary ClientHello, of one record. OpenSSL would take 128
/// KiB from anybody.
bool is_modest_hello(std::span<const unsigned char, hello_bytes> first);

/// Why a handshake failed, in one line: what is wrong with the other side's certificate, if that is it, and what to do;
/// else `otherwise`.
std::string handshake_problem(SSL* connection, const std::string& otherwise);

} // namespace parcae
