#include "protocols/trust/authority.hpp"

#include "protocols/base/input_file.hpp"
#include "protocols/trust/openssl.hpp"

#include <fcntl.h>
#include <openssl/ec.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <sstream>
#include <system_error>
#include <vector>

namespace parcae {

namespace {

namespace fs = std::filesystem;

constexpr long clock_error = 3'600;               ///< seconds, of machines whose clock is slow
constexpr std::chrono::days list_validity{3'650}; ///< it is written anew when something is revoked
constexpr std::string_view authority_name = "Parcae cluster";

std::string read_file(const fs::path& path) {
  constexpr std::uint64_t max_bytes = 64 << 20; // `issued` grows
  return contents_of(path, max_bytes);
}

/// Whole or not at all, also after a power cut.
void write_file(const fs::path& path, std::string_view text, mode_t mode) {
  const auto fail = [&](const fs::path& where) {
    throw std::runtime_error("cannot write " + where.string() + ": " + std::strerror(errno));
  };
  auto scratch = path;
  scratch += ".new";
  ::unlink(scratch.c_str());
  const int file = ::open(scratch.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0)
    fail(scratch);
  for (auto rest = text; !rest.empty();) {
    const auto n = ::write(file, rest.data(), rest.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      const auto error = errno;
      ::close(file);
      errno = error;
      fail(scratch);
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  const bool good = ::fsync(file) == 0;
  if (::close(file) != 0 || !good || ::rename(scratch.c_str(), path.c_str()) != 0)
    fail(path);
}

key_ptr new_key() {
  key_ptr key(EVP_EC_gen("P-256"));
  require(key != nullptr, "cannot make a key");
  return key;
}

/// A line of `issued`.
struct issue {
  std::string serial;
  identity who;
  std::string end; ///< its last day, 2026-11-23
};

/// "node spot-*": role and name, as its URI has them.
std::string words_of(const identity& who) {
  auto text = uri_of(who).substr(std::string_view("parcae://").size());
  text[text.find('/')] = ' ';
  return text;
}

std::vector<issue> issued_in(const fs::path& folder) {
  std::vector<issue> result;
  std::istringstream lines(read_file(folder / "issued"));
  for (std::string serial, role, name, end; lines >> serial >> role >> name >> end;)
    if (auto who = parse_identity_uri("parcae://" + role + "/" + name))
      result.push_back({serial, std::move(*who), end});
  return result;
}

std::string day_of(const std::tm& utc) {
  std::array<char, 32> day{};
  std::strftime(day.data(), day.size(), "%Y-%m-%d", &utc);
  return day.data();
}

std::string today() {
  const auto now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return day_of(utc);
}

std::string pem_of(EVP_PKEY* key) {
  const bio_ptr out(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1, "cannot write a key");
  return to_string(out.get());
}

std::string pem_of(X509* x) {
  const bio_ptr out(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509(out.get(), x) == 1, "cannot write a certificate");
  return to_string(out.get());
}

void add_name(X509_NAME* to, const char* field, std::string_view value) {
  require(X509_NAME_add_entry_by_txt(to, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(value.data()),
                                     static_cast<int>(value.size()), -1, 0) == 1,
          "cannot name a certificate");
}

void add_extension(X509* to, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
  const openssl_ptr<X509_EXTENSION, X509_EXTENSION_free> x(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  require(x && X509_add_ext(to, x.get(), -1) == 1, "cannot extend a certificate by " + value);
}

/// A certificate with a random serial number, of a key, good from now on; not yet signed.
certificate_ptr blank(EVP_PKEY* key, std::chrono::seconds validity) {
  certificate_ptr x(X509_new());
  require(x != nullptr, "cannot make a certificate");
  const number_ptr number(BN_new());
  require(number && BN_rand(number.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(x.get())),
          "cannot draw a serial number");
  require(X509_set_version(x.get(), X509_VERSION_3) == 1 && X509_set_pubkey(x.get(), key) == 1 &&
              X509_gmtime_adj(X509_getm_notBefore(x.get()), -clock_error) &&
              X509_gmtime_adj(X509_getm_notAfter(x.get()), static_cast<long>(validity.count())),
          "cannot make a certificate");
  return x;
}

/// What signs.
struct signer {
  key_ptr key;
  certificate_ptr certificate;

  explicit signer(const fs::path& folder) {
    const auto key_text = read_file(folder / "authority.key"), text = read_file(folder / "authority.pem");
    key.reset(PEM_read_bio_PrivateKey(bio_of(key_text).get(), nullptr, nullptr, nullptr));
    require(key != nullptr, "cannot read the key in " + (folder / "authority.key").string());
    certificate.reset(PEM_read_bio_X509(bio_of(text).get(), nullptr, nullptr, nullptr));
    require(certificate != nullptr, "cannot read the certificate in " + (folder / "authority.pem").string());
    require(X509_check_private_key(certificate.get(), key.get()) == 1,
            "authority.key and authority.pem in " + folder.string() + " do not belong together");
  }
};

/// The list with these serial numbers.
std::string list_of(const signer& by, const std::vector<std::string>& serials) {
  const revocation_ptr list(X509_CRL_new());
  const openssl_ptr<ASN1_TIME, ASN1_TIME_free> now(X509_gmtime_adj(nullptr, -clock_error)),
      end(X509_gmtime_adj(nullptr, static_cast<long>(std::chrono::seconds(list_validity).count())));
  require(list && now && end && X509_CRL_set_version(list.get(), X509_CRL_VERSION_2) == 1 &&
              X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(by.certificate.get())) == 1 &&
              X509_CRL_set1_lastUpdate(list.get(), now.get()) == 1 &&
              X509_CRL_set1_nextUpdate(list.get(), end.get()) == 1,
          "cannot make a list of revocations");
  for (const auto& serial : serials) {
    BIGNUM* raw = nullptr;
    require(BN_hex2bn(&raw, serial.c_str()) > 0, "\"" + serial + "\" is no serial number");
    const number_ptr number(raw);
    const openssl_ptr<ASN1_INTEGER, ASN1_INTEGER_free> asn1(BN_to_ASN1_INTEGER(number.get(), nullptr));
    openssl_ptr<X509_REVOKED, X509_REVOKED_free> entry(X509_REVOKED_new());
    require(asn1 && entry && X509_REVOKED_set_serialNumber(entry.get(), asn1.get()) == 1 &&
                X509_REVOKED_set_revocationDate(entry.get(), now.get()) == 1 &&
                X509_CRL_add0_revoked(list.get(), entry.get()) == 1,
            "cannot revoke " + serial);
    entry.release(); // the list's
  }
  require(X509_CRL_sort(list.get()) == 1 && X509_CRL_sign(list.get(), by.key.get(), EVP_sha256()) > 0,
          "cannot sign the list of revocations");
  const bio_ptr out(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509_CRL(out.get(), list.get()) == 1, "cannot write the list of revocations");
  return to_string(out.get());
}

std::vector<std::string> serials_in(const fs::path& list) {
  const auto text = read_file(list);
  const revocation_ptr before(PEM_read_bio_X509_CRL(bio_of(text).get(), nullptr, nullptr, nullptr));
  require(before != nullptr, "cannot read the list in " + list.string());
  std::vector<std::string> result;
  auto* entries = X509_CRL_get_REVOKED(before.get());
  for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i)
    result.push_back(to_string(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(entries, i))));
  return result;
}

/// A name is of one certificate, so that nobody joins as somebody else.
void require_free(const fs::path& folder, const identity& wanted) {
  const auto revoked = serials_in(folder / "revoked.pem");
  for (const auto& x : issued_in(folder))
    if (overlap(x.who, wanted) && x.end >= today() && std::ranges::find(revoked, x.serial) == revoked.end())
      throw std::runtime_error("\"" + wanted.name + "\" would be a name of " + to_string(x.who) +
                               ", whose certificate is good until " + x.end +
                               ": choose another, or revoke that with --revoke " + x.who.name);
}

} // namespace

void make_authority(const fs::path& folder, std::chrono::days validity) {
  if (fs::exists(folder / "authority.key"))
    throw std::runtime_error(folder.string() + " has an authority already; add to it with --add NAME --role ROLE");
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem)
    throw std::runtime_error("cannot make the folder " + folder.string() + ": " + problem.message());
  const auto key = new_key();
  const auto x = blank(key.get(), validity);
  // So that two clusters' authorities are told apart in messages.
  add_name(X509_get_subject_name(x.get()), "CN", std::string(authority_name) + " " + serial_of(x.get()).substr(0, 8));
  require(X509_set_issuer_name(x.get(), X509_get_subject_name(x.get())) == 1, "cannot name the authority");
  add_extension(x.get(), x.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(x.get(), x.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(x.get(), x.get(), NID_subject_key_identifier, "hash");
  require(X509_sign(x.get(), key.get(), EVP_sha256()) > 0, "cannot sign the authority's certificate");
  write_file(folder / "issued", "", 0600);
  write_file(folder / "authority.pem", pem_of(x.get()), 0644);
  write_file(folder / "authority.key", pem_of(key.get()), 0600);
  write_file(folder / "revoked.pem", list_of(signer(folder), {}), 0644);
}

fs::path issue_bundle(const fs::path& folder, membership role, const std::string& name, std::chrono::seconds validity,
                      bool fleet) {
  if (const auto problem = problem_of_name(name); !problem.empty())
    throw std::runtime_error("\"" + name + "\": " + problem);
  for (const auto* ours : {"authority", "revoked"})
    if (name == ours)
      throw std::runtime_error("\"" + name + "\" is the name of a file of the authority's: choose another");
  const signer by(folder);
  const identity who{role, name, {}, fleet};
  require_free(folder, who);
  const auto key = new_key();
  const auto x = blank(key.get(), validity);
  auto* subject = X509_get_subject_name(x.get());
  add_name(subject, "OU", to_string(role));
  add_name(subject, "CN", name);
  require(X509_set_issuer_name(x.get(), X509_get_subject_name(by.certificate.get())) == 1, "cannot name the authority");
  add_extension(x.get(), by.certificate.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(x.get(), by.certificate.get(), NID_key_usage, "critical,digitalSignature");
  // Nodes listen for each other's data; a client never listens, the manager never dials.
  add_extension(x.get(), by.certificate.get(), NID_ext_key_usage,
                role == membership::manager ? "serverAuth"
                : commands(role)            ? "clientAuth"
                                            : "serverAuth,clientAuth");
  add_extension(x.get(), by.certificate.get(), NID_subject_key_identifier, "hash");
  add_extension(x.get(), by.certificate.get(), NID_authority_key_identifier, "keyid:always");
  add_extension(x.get(), by.certificate.get(), NID_subject_alt_name, "URI:" + uri_of(who));
  require(X509_sign(x.get(), by.key.get(), EVP_sha256()) > 0, "cannot sign a certificate");
  // Noted first: what is not known to have been issued could never be revoked.
  write_file(folder / "issued",
             read_file(folder / "issued") + serial_of(x.get()) + " " + words_of(who) + " " +
                 day_of(utc_of(X509_get0_notAfter(x.get()))) + "\n",
             0600);
  auto path = folder / (name + ".pem");
  write_file(path, pem_of(key.get()) + pem_of(x.get()) + pem_of(by.certificate.get()), 0600);
  return path;
}

int revoke_bundles(const fs::path& folder, const std::string& name) {
  const signer by(folder);
  const auto list_path = folder / "revoked.pem";
  auto serials = serials_in(list_path);
  const auto known = serials.size();
  bool any = false;
  for (const auto& x : issued_in(folder))
    if (x.who.name == name) {
      any = true;
      if (std::ranges::find(serials, x.serial) == serials.end())
        serials.push_back(x.serial);
    }
  if (!any)
    throw std::runtime_error("no certificate of the name \"" + name + "\" was issued; " + (folder / "issued").string() +
                             " lists them");
  write_file(list_path, list_of(by, serials), 0644);
  return static_cast<int>(serials.size() - known);
}

} // namespace parcae
