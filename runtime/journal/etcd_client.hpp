#pragma once

// Requests to etcd, over the JSON gateway of its API v3 (checked against 3.4): keys and values in base64, 64-bit
// numbers as strings, fields that are false or 0 left out.

#include "protocols/http/http.hpp"
#include "runtime/process/address.hpp"

#include <boost/json/object.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

class http_client;

/// What --store names: members of one etcd cluster, and what the keys of this one Parcae cluster begin with there.
struct etcd_place {
  std::vector<address> members; ///< at least one
  std::string prefix;           ///< "/NAME/"
  bool tls = false;
  std::filesystem::path authority{}; ///< with TLS: of the members' certificates, as make_http_trust has it
  std::filesystem::path identity{};  ///< with TLS: what this process shows to them, likewise
};

/// "etcd://HOST:PORT,HOST:PORT,…[/NAME]", or "etcds://…" with TLS; IPv6 addresses in brackets; NAME is "parcae" if it
/// is left out. Throws std::invalid_argument with one line.
etcd_place parse_etcd_place(std::string_view text);

/// As parse_etcd_place reads it.
std::string to_string(const etcd_place& x);

/// Blocks. Not thread-safe. Keeps a connection to one member, and takes the next one when that fails.
class etcd_client {
public:
  /// Looks up the names of hosts, once: later requests do not wait for a name server. Throws std::runtime_error with
  /// one line if none is known, or what TLS needs cannot be read.
  explicit etcd_client(etcd_place place);
  ~etcd_client();

  /// What is answered to a POST of `question` to `path`, such as "/v3/kv/range". Members are asked in turn until one
  /// answers or `limit` is over: a request may thus have been done although another was asked after it. Throws
  /// std::runtime_error with one line that names a member: nobody answers, or etcd refuses.
  boost::json::object ask(const std::string& path, const boost::json::object& question,
                          std::chrono::milliseconds limit);

private:
  const etcd_place place_;
  std::vector<http_server> members_;
  std::size_t at_ = 0;
  std::unique_ptr<http_client> client_; ///< of members_[at_]; null: none yet
};

} // namespace parcae
