#include "protocols/trust/credentials.hpp"

#include "protocols/base/input_file.hpp"
#include "protocols/trust/openssl.hpp"

#include <openssl/ssl.h>
#include <sys/stat.h>

namespace parcae {

namespace {

namespace fs = std::filesystem;
namespace ssl = boost::asio::ssl;

constexpr std::uint64_t max_bytes = 1 << 20;
constexpr long max_certificate_bytes = 16 * 1024; ///< of the other side, which nobody knows yet

std::string read_secret(const fs::path& path) {
  struct ::stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && (facts.st_mode & S_IRWXO) != 0)
    throw std::runtime_error(path.string() + " holds a key and is open to everybody: chmod 600 it");
  return contents_of(path, max_bytes);
}

std::optional<identity> identity_of(const X509* x) {
  const openssl_ptr<GENERAL_NAMES, GENERAL_NAMES_free> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(x, NID_subject_alt_name, nullptr, nullptr)));
  if (!names || sk_GENERAL_NAME_num(names.get()) != 1)
    return std::nullopt;
  const auto* name = sk_GENERAL_NAME_value(names.get(), 0);
  if (name->type != GEN_URI)
    return std::nullopt;
  const auto* text = name->d.uniformResourceIdentifier;
  auto result = parse_identity_uri(
      {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<std::size_t>(ASN1_STRING_length(text))});
  if (!result)
    return std::nullopt;
  result->serial = serial_of(x);
  auto end = utc_of(X509_get0_notAfter(x));
  result->ends =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::from_time_t(timegm(&end)));
  return result;
}

/// Two certificates in a bundle: the process's, then its authority's.
struct chain {
  certificate_ptr own, authority;

  explicit chain(const std::string& text) {
    const auto in = bio_of(text);
    own.reset(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
    require(own != nullptr, "it has no certificate");
    authority.reset(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
    require(authority != nullptr, "it has no certificate of its authority");
  }
};

fs::path place_of_list(const fs::path& bundle) {
  return bundle.parent_path() / "revoked.pem";
}

std::shared_ptr<X509_CRL> list_beside(const fs::path& bundle) {
  const auto path = place_of_list(bundle);
  if (!fs::exists(path))
    return nullptr;
  const auto text = contents_of(path, max_bytes);
  std::shared_ptr<X509_CRL> list(PEM_read_bio_X509_CRL(bio_of(text).get(), nullptr, nullptr, nullptr), X509_CRL_free);
  require(list != nullptr, path.string() + " is no list of revocations");
  return list;
}

bool is_of(X509_CRL* list, X509* authority) {
  const bool result = X509_CRL_verify(list, X509_get0_pubkey(authority)) == 1;
  ERR_clear_error();
  return result;
}

bool has(X509_CRL* list, const ASN1_INTEGER* serial) {
  X509_REVOKED* entry = nullptr;
  return X509_CRL_get0_by_serial(list, &entry, serial) != 0;
}

/// What is wrong with the certificate of another, and what to do where that is not plain.
std::string problem_of_certificate(long result) {
  switch (result) {
  case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
  case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
  case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
  case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
  case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
  case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    return "another authority made it than ours: it is of another cluster, or one of both has an old --bundle";
  case X509_V_ERR_CERT_NOT_YET_VALID:
    return "it is not good yet: one of both clocks is wrong";
  default:
    return X509_verify_cert_error_string(result);
  }
}

/// Throws what others would find, so that it is found at once.
void require_good(const chain& x, X509_STORE* store) {
  const store_context_ptr check(X509_STORE_CTX_new());
  require(check && X509_STORE_CTX_init(check.get(), store, x.own.get(), nullptr) == 1, "cannot be checked");
  if (X509_verify_cert(check.get()) != 1)
    throw std::runtime_error(X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get())));
}

// The fastest of TLS 1.3's first: much is sent through it.
constexpr const char* ciphers = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

// A second ClientHello, which a server asks for if the first brings no share of a key it can use, may be of 128 KiB;
// all our own bring this one.
constexpr unsigned usable_group = 0x001D; // X25519

int require_key_share(SSL* connection, int* alert, void*) {
  const unsigned char* x = nullptr;
  std::size_t size = 0;
  *alert = SSL_AD_HANDSHAKE_FAILURE;
  if (SSL_client_hello_get0_ext(connection, TLSEXT_TYPE_key_share, &x, &size) != 1 || size < 2)
    return SSL_CLIENT_HELLO_ERROR;
  for (std::size_t at = 2; at + 4 <= size;) {
    if ((x[at] << 8 | x[at + 1]) == usable_group)
      return SSL_CLIENT_HELLO_SUCCESS;
    at += 4 + static_cast<std::size_t>(x[at + 2] << 8 | x[at + 3]);
  }
  return SSL_CLIENT_HELLO_ERROR;
}

} // namespace

credentials::credentials(const fs::path& bundle, const credentials* before) : context_(ssl::context::tls) {
  const auto text = read_secret(bundle);
  try {
    const chain certificates(text);
    const auto who = identity_of(certificates.own.get());
    if (!who)
      throw std::runtime_error("its certificate is not of Parcae");
    self_ = *who;
    list_ = list_beside(bundle);
    if (list_ && !is_of(list_.get(), certificates.authority.get()))
      throw std::runtime_error(place_of_list(bundle).string() +
                               " is another authority's: put this one's there, or none if it has revoked nothing");
    // Of what another authority has made nothing is believed any more.
    if (before && before->list_ && is_of(before->list_.get(), certificates.authority.get()))
      require_all_of(*before, place_of_list(bundle));
    auto* native = context_.native_handle();
    auto* store = SSL_CTX_get_cert_store(native);
    require(X509_STORE_add_cert(store, certificates.authority.get()) == 1, "its authority cannot be used");
    if (list_)
      require(X509_STORE_add_crl(store, list_.get()) == 1 && X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) == 1,
              "its list of revocations cannot be used");
    const key_ptr key(PEM_read_bio_PrivateKey(bio_of(text).get(), nullptr, nullptr, nullptr));
    require(key != nullptr, "it has no key");
    require(SSL_CTX_use_certificate(native, certificates.own.get()) == 1 &&
                SSL_CTX_use_PrivateKey(native, key.get()) == 1,
            "its key and its certificate do not belong together");
    require_good(certificates, store);
    require(SSL_CTX_set_min_proto_version(native, TLS1_3_VERSION) == 1 && SSL_CTX_set_num_tickets(native, 0) == 1 &&
                SSL_CTX_set_ciphersuites(native, ciphers) == 1,
            "TLS 1.3 cannot be had");
    SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_verify_depth(native, 1);
    SSL_CTX_set_max_cert_list(native, max_certificate_bytes);
    SSL_CTX_set_client_hello_cb(native, require_key_share, nullptr);
    context_.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error("cannot use the bundle " + bundle.string() + ": " + e.what());
  }
}

// Revoked is for ever. By what it has, not by its date: clocks are set.
void credentials::require_all_of(const credentials& before, const fs::path& list) const {
  auto* known = X509_CRL_get_REVOKED(before.list_.get());
  int lacks = 0;
  for (int i = 0; i < sk_X509_REVOKED_num(known); ++i)
    lacks += !list_ || !has(list_.get(), X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(known, i)));
  if (lacks > 0)
    throw std::runtime_error(list.string() +
                             (list_ ? " is older than what was read before, and lacks " : " is gone, with ") +
                             std::to_string(lacks) + " of the certificates that are revoked: put the newest there");
}

std::optional<identity> credentials::peer_of(SSL* connection) {
  const certificate_ptr x(SSL_get1_peer_certificate(connection));
  if (!x || SSL_get_verify_result(connection) != X509_V_OK)
    return std::nullopt;
  return identity_of(x.get());
}

bool credentials::revoked(const identity& x) const {
  if (!list_)
    return false;
  BIGNUM* raw = nullptr;
  if (BN_hex2bn(&raw, x.serial.c_str()) == 0)
    return true;
  const number_ptr number(raw);
  const openssl_ptr<ASN1_INTEGER, ASN1_INTEGER_free> serial(BN_to_ASN1_INTEGER(number.get(), nullptr));
  return has(list_.get(), serial.get());
}

std::size_t record_bytes(std::span<const unsigned char, hello_bytes> x) {
  return 5 + (static_cast<std::size_t>(x[3]) << 8 | x[4]);
}

bool is_modest_hello(std::span<const unsigned char, hello_bytes> x) {
  constexpr unsigned char handshake = 22, version = 3, client_hello = 1;
  constexpr std::size_t most = 8 * 1024;
  const auto message = 4 + (static_cast<std::size_t>(x[6]) << 16 | static_cast<std::size_t>(x[7]) << 8 | x[8]);
  return x[0] == handshake && x[1] == version && x[5] == client_hello && message <= most &&
         record_bytes(x) == 5 + message;
}

std::string handshake_problem(SSL* connection, const std::string& otherwise) {
  const auto result = SSL_get_verify_result(connection);
  return result == X509_V_OK ? otherwise : "its certificate: " + problem_of_certificate(result);
}

} // namespace parcae
