#pragma once

// What the kernel can do: two connected blocking sockets, without any frame, checksum or thread.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <system_error>

namespace parcae {

inline void check(bool good, const char* what) {
  if (!good)
    throw std::system_error(errno, std::generic_category(), what);
}

/// Two connected blocking sockets with the options of the communicator.
struct bare_pair {
  bare_pair() {
    int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    for (int x : {listener, ends[0]}) {
      int size = 4 << 20, on = 1;
      check(::setsockopt(x, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0, "SO_SNDBUF");
      check(::setsockopt(x, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0, "SO_RCVBUF");
      check(::setsockopt(x, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
    }
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    check(::bind(listener, reinterpret_cast<sockaddr*>(&where), size) == 0, "bind");
    check(::listen(listener, 1) == 0, "listen");
    check(::getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size) == 0, "getsockname");
    check(::connect(ends[0], reinterpret_cast<sockaddr*>(&where), size) == 0, "connect");
    ends[1] = ::accept(listener, nullptr, nullptr);
    check(ends[1] >= 0, "accept");
    ::close(listener);
  }

  ~bare_pair() {
    ::close(ends[0]);
    ::close(ends[1]);
  }

  void send(int end, std::span<const std::byte> x) {
    while (!x.empty()) {
      auto n = ::send(ends[end], x.data(), x.size(), MSG_NOSIGNAL);
      check(n > 0, "send");
      x = x.subspan(static_cast<std::size_t>(n));
    }
  }

  void receive(int end, std::span<std::byte> x) {
    while (!x.empty()) {
      auto n = ::recv(ends[end], x.data(), x.size(), 0);
      check(n > 0, "recv");
      x = x.subspan(static_cast<std::size_t>(n));
    }
  }

  int ends[2];
};

} // namespace parcae
