#include "runtime/gateway/api_keys.hpp"

#include "protocols/base/input_file.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace parcae {

namespace {

constexpr std::size_t least = 16, most = 256, max_file = 1 << 20;

bool same(std::string_view x, std::string_view y) {
  return x.size() == y.size() && CRYPTO_memcmp(x.data(), y.data(), x.size()) == 0;
}

} // namespace

api_keys::api_keys(const std::filesystem::path& file) {
  std::istringstream lines(contents_of(file, max_file));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' '))
      line.pop_back();
    if (line.empty() || line.front() == '#')
      continue;
    if (line.size() < least || line.size() > most)
      throw std::runtime_error("a key in " + file.string() + " has " + std::to_string(line.size()) +
                               " characters; it should have 16 to 256");
    all_.push_back(std::move(line));
  }
  if (all_.empty())
    throw std::runtime_error("there is no key in " + file.string() +
                             ": write one on each line, such as by openssl "
                             "rand -hex 32");
}

bool api_keys::admit(std::string_view authorization) const {
  if (all_.empty())
    return true;
  constexpr std::string_view bearer = "Bearer ";
  if (!authorization.starts_with(bearer))
    return false;
  const auto key = authorization.substr(bearer.size());
  bool result = false;
  for (const auto& x : all_) // all of them, whichever it is
    result |= same(x, key);
  return result;
}

} // namespace parcae
