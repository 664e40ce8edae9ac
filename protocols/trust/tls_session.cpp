#include "protocols/trust/tls_session.hpp"

#include "protocols/trust/openssl.hpp"

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

namespace parcae {

namespace {

constexpr std::size_t max_record_bytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::size_t wide_bytes = 64 * 1024; ///< read at once

} // namespace

/// OpenSSL's view of the socket. Its own would raise SIGPIPE, and send each record by a call of its own.
struct descriptor_bio {
  static tls_session& of(BIO* x) { return *static_cast<tls_session*>(BIO_get_data(x)); }

  static int read(BIO* x, char* to, int size) {
    auto& session = of(x);
    BIO_clear_retry_flags(x);
    ssize_t n = 0;
    do
      n = ::recv(session.descriptor_, to, static_cast<std::size_t>(size), MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      BIO_set_retry_read(x);
    else if (n < 0)
      session.error_ = errno;
    else if (n == 0)
      session.ended_ = true;
    return static_cast<int>(n);
  }

  static int write(BIO* x, const char* from, int size) {
    auto& sealed = of(x).sealed_;
    try {
      sealed.insert(sealed.end(), from, from + size);
    } catch (const std::bad_alloc&) {
      return -1; // through OpenSSL nothing may be thrown
    }
    return size;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static const BIO_METHOD* method() {
    static BIO_METHOD* const result = [] {
      auto* x = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "parcae");
      require(x && BIO_meth_set_read(x, read) == 1 && BIO_meth_set_write(x, write) == 1 &&
                  BIO_meth_set_ctrl(x, control) == 1,
              "OpenSSL has no place for a socket");
      return x;
    }();
    return result;
  }
};

void tls_session::ssl_free::operator()(SSL* x) const {
  SSL_free(x);
}

tls_session::tls_session(std::shared_ptr<const credentials> own, int descriptor, link_side here,
                         std::uint64_t keys_last) :
    own_(std::move(own)),
    descriptor_(descriptor), keys_last_(keys_last), ssl_(SSL_new(own_->context().native_handle())) {
  BIO* bio = BIO_new(descriptor_bio::method());
  if (!ssl_ || !bio) {
    BIO_free(bio);
    openssl_failed("there is no memory for TLS");
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_read_ahead(ssl_.get(), 1);
  SSL_set_options(ssl_.get(), SSL_OP_IGNORE_UNEXPECTED_EOF); // frames say how long they are
  if (here == link_side::accepted)
    SSL_set_accept_state(ssl_.get());
  else
    SSL_set_connect_state(ssl_.get());
}

tls_session::~tls_session() = default;

void tls_session::widen() {
  SSL_set_default_read_buffer_len(ssl_.get(), wide_bytes);
  SSL_free_buffers(ssl_.get()); // the next are of that size, and stay
  SSL_clear_mode(ssl_.get(), SSL_MODE_RELEASE_BUFFERS);
}

tls_session::handshake tls_session::shake_hands() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    flush();
    return handshake::done;
  }
  const auto what = classify(result);
  flush(); // an alert, too
  if (what < 0 && error_ == 0)
    return handshake::under_way;
  problem_ = handshake_problem(ssl_.get(),
                               "no TLS handshake: " + (what == 0 ? std::string("it closed the connection") : problem_));
  return handshake::failed;
}

std::optional<identity> tls_session::peer() const {
  return credentials::peer_of(ssl_.get());
}

/// After a call of OpenSSL's moved nothing: as receive().
ssize_t tls_session::classify(int result) {
  const int error = SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ) {
    errno = EAGAIN;
    return -1;
  }
  if (error == SSL_ERROR_ZERO_RETURN || ended_)
    return 0;
  if (error_ == 0) {
    const auto* why = ERR_reason_error_string(ERR_peek_error());
    problem_ = why ? why : "TLS failed";
    error_ = EPROTO;
  } else if (error_ != EPROTO) {
    problem_ = std::strerror(error_);
  }
  ERR_clear_error();
  errno = error_;
  return -1;
}

ssize_t tls_session::receive(std::span<const iovec> into) {
  std::size_t got = 0;
  for (const auto& piece : into)
    for (std::size_t at = 0; at < piece.iov_len;) {
      ERR_clear_error();
      std::size_t n = 0;
      const int result = SSL_read_ex(ssl_.get(), static_cast<char*>(piece.iov_base) + at, piece.iov_len - at, &n);
      if (result != 1) {
        const auto why = classify(result);
        return got > 0 ? static_cast<ssize_t>(got) : why; // it is said again
      }
      at += n;
      got += n;
    }
  return static_cast<ssize_t>(got);
}

bool tls_session::seal(std::span<const std::byte> x) {
  if (with_this_key_ >= keys_last_ && SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
    with_this_key_ = 0;
  ERR_clear_error();
  std::size_t n = 0;
  if (const int result = SSL_write_ex(ssl_.get(), x.data(), x.size(), &n); result != 1) {
    classify(result);
    errno = error_ = EPROTO;
    return false;
  }
  with_this_key_ += n;
  return true;
}

// Records are as large as they may be: what is small goes together.
ssize_t tls_session::send(std::span<const iovec> from) {
  if (!flush())
    return -1;
  std::array<std::byte, max_record_bytes> together;
  std::size_t held = 0, taken = 0;
  for (const auto& piece : from) {
    std::span rest(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
    while (!rest.empty() && taken < batch_bytes) {
      const auto n = std::min(rest.size(), max_record_bytes - held);
      if (n < max_record_bytes) {
        std::memcpy(together.data() + held, rest.data(), n);
        held += n;
      } else if (!seal(rest.first(n))) {
        return -1;
      }
      rest = rest.subspan(n);
      taken += n;
      if (held == max_record_bytes) {
        if (!seal(together))
          return -1;
        held = 0;
      }
    }
  }
  if (held > 0 && !seal(std::span(together).first(held)))
    return -1;
  if (!flush() && errno != EAGAIN && errno != EWOULDBLOCK)
    return -1;
  return static_cast<ssize_t>(taken);
}

bool tls_session::flush() {
  while (unsent()) {
    const auto n = ::send(descriptor_, sealed_.data() + sent_, sealed_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return false;
    sent_ += static_cast<std::size_t>(n);
  }
  sealed_.clear();
  sent_ = 0;
  return true;
}

} // namespace parcae
