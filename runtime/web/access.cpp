#include "runtime/web/access.hpp"

#include "protocols/base/digest.hpp"
#include "protocols/base/text.hpp"
#include "runtime/process/address.hpp"

#include <boost/algorithm/string/predicate.hpp>
#include <boost/asio/ip/address.hpp>

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <span>

namespace parcae {

namespace {

constexpr std::size_t token_bytes = 32;

[[noreturn]] void failed(const std::filesystem::path& file, const std::string& why) {
  throw std::runtime_error("the token file " + file.string() + " " + why);
}

std::string new_token() {
  std::array<unsigned char, token_bytes> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1)
    throw std::runtime_error("there are no random bytes for a token");
  return hexadecimal(std::as_bytes(std::span(bytes)));
}

struct descriptor {
  int value;
  ~descriptor() {
    if (value >= 0)
      ::close(value);
  }
};

/// Without port and brackets, in lower case; empty: it is no host.
std::string name_in(std::string_view host) {
  auto result = parse_host_and_port(host).value_or(host_and_port{}).host;
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

boost::asio::ip::address address_of(const std::string& text) {
  boost::system::error_code none;
  auto result = boost::asio::ip::make_address(text, none);
  if (result.is_v6() && result.to_v6().is_v4_mapped())
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, result.to_v6());
  return result;
}

bool is_called(const web_access& access, const std::string& name, const std::string& local) {
  if (access.hosts.contains(name))
    return true;
  if (is_loopback(local) && is_loopback(name))
    return true;
  const auto address = address_of(name);
  return !address.is_unspecified() && address == address_of(local);
}

} // namespace

std::string read_token(const std::filesystem::path& file) {
  const descriptor made{::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (made.value >= 0) {
    const auto token = new_token();
    const auto line = token + "\n";
    if (::write(made.value, line.data(), line.size()) != static_cast<ssize_t>(line.size()) || ::fsync(made.value) != 0)
      failed(file, std::string("cannot be written: ") + std::strerror(errno));
    return token;
  }
  if (errno != EEXIST)
    failed(file, std::string("cannot be made: ") + std::strerror(errno));
  const descriptor found{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat what {};
  if (found.value < 0 || ::fstat(found.value, &what) != 0)
    failed(file, std::string("cannot be read: ") + std::strerror(errno));
  if ((what.st_mode & S_IRWXO) != 0) // as of a bundle: a pod's secrets are its group's
    failed(file, "can be read by others: make it yours alone with chmod 600, and remove it first if it is not secret");
  std::array<char, 2 * token_bytes + 2> text{};
  const auto size = ::read(found.value, text.data(), text.size());
  std::string token(text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, size)));
  if (token.ends_with('\n'))
    token.pop_back();
  if (token.size() != 2 * token_bytes || !is_hexadecimal(token))
    failed(file, "is not a token: 64 hexadecimal digits; remove it, and another is made");
  return token;
}

bool same_token(std::string_view x, std::string_view y) {
  return x.size() == y.size() && CRYPTO_memcmp(x.data(), y.data(), x.size()) == 0;
}

void check_origin(const web_access& access, const web_head& head, const std::string& local) {
  if (head.host.empty() || !is_called(access, name_in(head.host), local))
    throw web_error(421, "this server is not called so; name it with --host when it is started");
  const auto is_own = [&] {
    const auto scheme = head.origin.find("://");
    return scheme != head.origin.npos && head.origin.substr(scheme + 3) == head.host;
  };
  if (!head.origin.empty() && !is_own())
    throw web_error(403, "a page from elsewhere may ask nothing here");
  if (!head.fetch_site.empty() && head.fetch_site != "same-origin" && head.fetch_site != "none")
    throw web_error(403, "a page from elsewhere may ask nothing here");
}

const char* allowed(const web_access& access, const web_head& head) {
  constexpr std::string_view scheme = "bearer ";
  if (access.token.empty())
    return "all";
  const std::string_view shown = head.authorization;
  if (!boost::algorithm::istarts_with(shown, scheme))
    return "nothing";
  const auto token = shown.substr(scheme.size());
  const bool all = same_token(token, access.token);
  const bool look = !access.read_token.empty() && same_token(token, access.read_token);
  return all ? "all" : look ? "look" : "nothing";
}

void check_token(const web_access& access, const web_head& head, bool changes) {
  const std::string_view may = allowed(access, head);
  if (may == "nothing" && head.authorization.empty())
    throw web_error(401, "a token is needed: Authorization: Bearer, and what --token-file has");
  if (may == "nothing")
    throw web_error(401, "this token is not good here");
  if (may == "look" && changes)
    throw web_error(403, "this token is for looking only");
}

bool pace_limit::allows(time_point now) {
  if (last_ != time_point{})
    left_ = std::min(per_second_, left_ + per_second_ * std::chrono::duration<double>(now - last_).count());
  last_ = now;
  if (left_ < 1)
    return false;
  left_ -= 1;
  return true;
}

} // namespace parcae
