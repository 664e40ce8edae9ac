#include "protocols/values/secrets.hpp"

#include "protocols/base/digest.hpp"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

namespace parcae {

bool operator==(const secret_key& a, const secret_key& b) {
  return CRYPTO_memcmp(a.words.data(), b.words.data(), sizeof a.words) == 0;
}

bool operator==(const data_token& a, const data_token& b) {
  return ((a.high ^ b.high) | (a.low ^ b.low)) == 0;
}

secret_key random_secret() {
  secret_key result;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(result.words.data()), sizeof result.words) != 1)
    throw std::runtime_error("there are no random numbers for secrets");
  return result;
}

secret_key key_of(const secret_key& from, std::string_view purpose, std::initializer_list<std::uint64_t> where) {
  std::string text(purpose);
  text += '\0'; // the rest has a fixed form: no two inputs are one text
  for (auto word : where)
    for (int i = 0; i < 8; ++i)
      text += static_cast<char>(word >> (8 * i) & 0xff);
  secret_key result;
  const auto bytes = hmac_sha256(std::as_bytes(std::span(from.words)), text);
  static_assert(sizeof result.words == sizeof bytes);
  std::memcpy(result.words.data(), bytes.data(), sizeof bytes);
  return result;
}

data_token token_of(const secret_key& from, std::string_view purpose, std::initializer_list<std::uint64_t> where) {
  const auto all = key_of(from, purpose, where);
  return {all.words[0], all.words[1]};
}

snapshot_permit permit_of(const secret_key& key, const slot_id& of) {
  return {of, token_of(key, "stream " + of.instance, {of.life.value, of.index})}; // a name has no zero byte
}

} // namespace parcae
