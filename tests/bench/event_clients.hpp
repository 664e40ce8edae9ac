#pragma once

// Clients of a served model that cost next to nothing: all of them on the calling thread, which looks for the status
// and the end of what comes, and at nothing else. For loads that would otherwise measure the clients' own threads.

#include "tests/bench/service_load.hpp"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace parcae {

class event_clients {
public:
  explicit event_clients(std::uint16_t port) : port_(port), poll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (poll_ < 0)
      throw std::system_error(errno, std::generic_category(), "epoll");
  }
  ~event_clients() { ::close(poll_); }
  event_clients(const event_clients&) = delete;

  // Answers in the order of their requests. They came when their client began to connect; their tokens are not noted.
  // One of which nothing comes for long was not answered.

  /// Each when it is its time.
  std::vector<timed_answer> ask(const std::vector<timed_request>& all) {
    std::vector<std::string> texts;
    for (const auto& x : all)
      texts.push_back(text_of(x.wish));
    begin();
    std::size_t next = 0;
    while (next < all.size() || !open_.empty()) {
      for (; next < all.size() && all[next].at_ms <= now_ms(); ++next)
        start(std::move(texts[next]), 0);
      if (!wait(next < all.size() ? all[next].at_ms - now_ms() : patience_ms))
        give_up();
    }
    return std::move(answers_);
  }

  /// Each of so many clients asks for the next of its `wishes` when it has the last answer, until it is time.
  std::vector<timed_answer> keep_asking(std::vector<std::function<completion_wish()>> wishes, double seconds) {
    begin();
    for (std::size_t i = 0; i < wishes.size(); ++i)
      start(text_of(wishes[i]()), i);
    while (!open_.empty()) {
      if (!wait(patience_ms))
        give_up();
      for (const auto client : std::exchange(free_, {}))
        if (now_ms() < seconds * 1e3)
          start(text_of(wishes[client]()), client);
    }
    return std::move(answers_);
  }

private:
  struct connection {
    std::size_t answer = 0, client = 0;
    std::string unsent{}, unread{}; ///< unread: what may be the beginning of what is looked for
  };

  static constexpr double patience_ms = 30'000;

  std::string text_of(const completion_wish& x) const {
    return web_question{"POST", "/v1/completions", {}, x.body(true)}.text(port_);
  }

  double now_ms() const { return since_ms(begin_); }

  void begin() {
    begin_ = steady::now();
    answers_.clear();
    free_.clear();
  }

  void start(std::string text, std::size_t client) {
    answers_.push_back({.came_ms = now_ms()});
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0)
      throw std::system_error(errno, std::generic_category(), "socket");
    open_[socket] = {answers_.size() - 1, client, std::move(text)};
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port_);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    epoll_event wants{};
    wants.events = EPOLLOUT;
    wants.data.fd = socket;
    const bool connects = ::connect(socket, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
    if ((!connects && errno != EINPROGRESS) || ::epoll_ctl(poll_, EPOLL_CTL_ADD, socket, &wants) != 0)
      end(socket, 0);
  }

  /// False: nothing has come in this time, which is all that anybody waits.
  bool wait(double ms) {
    std::array<epoll_event, 64> events{};
    const auto ns = static_cast<std::int64_t>(std::clamp(ms, 0.0, patience_ms) * 1e6);
    const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
    const auto count = ::epoll_pwait2(poll_, events.data(), static_cast<int>(events.size()), &limit, nullptr);
    for (int i = 0; i < count; ++i)
      if (const auto& x = events[static_cast<std::size_t>(i)]; (x.events & EPOLLOUT) != 0)
        send(x.data.fd);
      else
        receive(x.data.fd);
    return count > 0 || ms < patience_ms;
  }

  void send(int socket) {
    auto& text = open_.at(socket).unsent;
    const auto n = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
      return end(socket, 0);
    text.erase(0, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    epoll_event wants{};
    wants.events = EPOLLIN;
    wants.data.fd = socket;
    if (text.empty())
      ::epoll_ctl(poll_, EPOLL_CTL_MOD, socket, &wants);
  }

  void receive(int socket) {
    constexpr std::size_t head = 12; // "HTTP/1.1 200"
    constexpr std::string_view over = "\ndata: [DONE]", wrong = "\ndata: {\"error\"";
    const auto n = ::recv(socket, some_.data(), some_.size(), 0);
    if (n < 0 && errno == EAGAIN)
      return;
    if (n <= 0)
      return end(socket, 0); // before it was over
    auto& x = open_.at(socket);
    auto& status = answers_[x.answer].status;
    x.unread.append(some_.data(), static_cast<std::size_t>(n));
    if (status == 0 && x.unread.size() >= head)
      status = static_cast<unsigned>(std::stoul(x.unread.substr(head - 3, 3)));
    if (status == 0)
      return;
    if (status != 200)
      return end(socket, status);
    if (x.unread.find(over) != x.unread.npos)
      return end(socket, 200);
    if (x.unread.find(wrong) != x.unread.npos)
      return end(socket, 500);
    x.unread.erase(0, x.unread.size() - std::min(x.unread.size(), wrong.size()));
  }

  void end(int socket, unsigned status) {
    const auto& x = open_.at(socket);
    answers_[x.answer].done_ms = now_ms();
    answers_[x.answer].status = status;
    free_.push_back(x.client);
    open_.erase(socket);
    ::close(socket);
  }

  void give_up() {
    while (!open_.empty())
      end(open_.begin()->first, 0);
  }

  const std::uint16_t port_;
  const int poll_;
  steady::time_point begin_ = steady::now();
  std::vector<timed_answer> answers_;
  std::map<int, connection> open_;  ///< by socket
  std::vector<std::size_t> free_{}; ///< clients who may ask again
  std::array<char, 64 * 1024> some_{};
};

} // namespace parcae
