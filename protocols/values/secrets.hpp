#pragma once

// Secrets of the data plane. The manager process draws one, which is never sent; all others follow from it, each for
// one use, by HMAC-SHA256 (RFC 2104): none tells anything of another, nor of the one it follows from.

#include "protocols/base/described.hpp"
#include "protocols/values/ids.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace parcae {

/// 256 bits from which others follow.
struct secret_key {
  std::array<std::uint64_t, 4> words{};

  friend bool operator==(const secret_key& a, const secret_key& b); ///< takes the same time whatever they are
};
BOOST_DESCRIBE_STRUCT(secret_key, (), (words))

/// What a data connection has to show: 128 bits.
struct data_token {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const data_token& a, const data_token& b); ///< takes the same time whatever they are
};
BOOST_DESCRIBE_STRUCT(data_token, (), (high, low))

/// From the system's source of random numbers. Throws std::runtime_error if there is none.
secret_key random_secret();

/// `purpose` has no zero byte.
secret_key key_of(const secret_key& from, std::string_view purpose, std::initializer_list<std::uint64_t> where);
data_token token_of(const secret_key& from, std::string_view purpose, std::initializer_list<std::uint64_t> where);

/// Lets one slot send snapshots of one job: who it is, and its token.
struct snapshot_permit {
  slot_id of; ///< the sender
  data_token token;
};
BOOST_DESCRIBE_STRUCT(snapshot_permit, (), (of, token))

/// `key` is known to the manager and to the job's keepers (GUARD).
snapshot_permit permit_of(const secret_key& key, const slot_id& of);

} // namespace parcae
