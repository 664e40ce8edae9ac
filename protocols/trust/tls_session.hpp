#pragma once

// TLS on a socket that others wait on. Any thread that has time moves its bytes, with calls that take what recvmsg and
// sendmsg take, return what these return, and never block.

#include "protocols/trust/credentials.hpp"

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// One call at a time. The descriptor is its owner's, and must be open whenever one is made.
class tls_session {
public:
  /// The most that is sealed before it is sent.
  static constexpr std::size_t batch_bytes = 128 * 1024;
  /// After how many bytes keys are replaced: AES-GCM is good for 2^24.5 records (RFC 8446, 5.5), of 16 KiB at most.
  static constexpr std::uint64_t key_bytes = std::uint64_t{64} << 30;

  tls_session(std::shared_ptr<const credentials> own, int descriptor, link_side here,
              std::uint64_t keys_last = key_bytes);
  ~tls_session();
  tls_session(const tls_session&) = delete;
  tls_session& operator=(const tls_session&) = delete;

  enum class handshake : std::uint8_t { done, under_way, failed };
  /// Does what can be done; under way: if nothing is unsent() it waits for the other side. Failed: see problem().
  handshake shake_hands();

  /// Once it is known who the other side is: buffers become larger, which makes it faster.
  void widen();

  /// Bytes opened into these; 0: the other side has ended; −1: errno, EAGAIN if nothing is there, EPROTO: see
  /// problem(). As long as it did not say EAGAIN there may be more here than the socket knows of.
  ssize_t receive(std::span<const iovec> into);
  /// Bytes sealed of these, batch_bytes at most; −1: errno, as above. What was sealed is gone once nothing is unsent().
  ssize_t send(std::span<const iovec> from);
  /// Sends what is sealed. Whether all is gone; if not errno says why.
  bool flush();
  bool unsent() const { return sent_ < sealed_.size(); }

  /// What went wrong, in one line.
  const std::string& problem() const { return problem_; }
  /// After the handshake; empty if its certificate is not one of issue_bundle's.
  std::optional<identity> peer() const;

private:
  friend struct descriptor_bio;
  struct ssl_free {
    void operator()(SSL* x) const;
  };

  bool seal(std::span<const std::byte> x);
  ssize_t classify(int result);

  std::shared_ptr<const credentials> own_;
  const int descriptor_;
  const std::uint64_t keys_last_;
  std::uint64_t with_this_key_ = 0; ///< bytes sealed
  std::vector<char> sealed_;        ///< on its way out, from sent_ on
  std::size_t sent_ = 0;
  bool ended_ = false; ///< the socket has
  int error_ = 0;      ///< errno of the socket, or EPROTO
  std::string problem_;
  std::unique_ptr<SSL, ssl_free> ssl_;
};

} // namespace parcae
