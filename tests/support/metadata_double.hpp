#pragma once

// The metadata servers of AWS, GCP and Azure on loopback, as far as notices need them, with the answers that are
// documented; and all the ways in which such a server can be broken.

#include "tests/support/web_double.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// How a server answers every request.
enum class misbehaviour : std::uint8_t {
  none,
  http_500,
  http_503,
  http_429,
  redirect,  ///< to itself
  silence,   ///< takes the request and says nothing
  trickle,   ///< a byte each 50 ms
  hang_up,   ///< ends the connection instead
  no_http,   ///< bytes that are none
  nonsense,  ///< 200, with a body that means nothing
  endless,   ///< a body without end
  long_head, ///< headers without end
  truncated, ///< less than the body that was announced
};

/// What the machine's metadata say. All clouds are in one, as their paths differ.
struct metadata_documents {
  bool is_aws = true, is_gcp = true, is_azure = true;

  std::optional<std::string> instance_action; ///< AWS: nothing is 404
  std::optional<std::string> rebalance;
  std::chrono::seconds max_token_life{21'600};
  std::optional<std::string> role_credentials; ///< of the role "tests"; nothing: the instance has none

  std::string preempted = "FALSE"; ///< GCP
  std::string maintenance = "NONE";
  bool says_google = true;
  bool holds = true; ///< with wait_for_change

  std::string name = "machine-0"; ///< Azure
  std::string events = R"({"DocumentIncarnation":1,"Events":[]})";

  std::chrono::seconds clock_ahead{0}; ///< of its Date, to this machine's clock
};

/// A real HTTP server, on a port of its own from construction to destruction. All methods from any thread.
class metadata_double {
public:
  metadata_double();
  ~metadata_double();

  std::uint16_t port() const { return web_.port(); }
  std::string server() const { return "127.0.0.1:" + std::to_string(port()); }

  void change(const std::function<void(metadata_documents&)>& how);
  void misbehave(misbehaviour how) { how_ = how; }
  void expire_tokens();

  /// "GET /path?query", in the order of their coming.
  std::vector<std::string> requests() const;
  std::size_t count(const std::string& beginning) const; ///< of requests that begin so
  std::vector<std::string> acknowledged() const;         ///< events of StartRequests

private:
  struct reply;
  struct asked;

  web_double::response serve(const web_double::request& request);
  bool misbehaves(const web_double::request& request, boost::asio::ip::tcp::socket& socket);
  reply answer(const asked& x);
  reply of_aws(const asked& x);
  reply of_google(const asked& x);
  reply of_azure(const asked& x);

  mutable std::mutex mutex_;
  metadata_documents documents_;
  std::vector<std::string> tokens_; ///< that are valid
  std::uint64_t tokens_made_ = 0;
  std::vector<std::string> requests_, acknowledged_;
  std::atomic<misbehaviour> how_{misbehaviour::none};
  std::atomic<bool> over_ = false;
  web_double web_; ///< ends first
};

} // namespace parcae
