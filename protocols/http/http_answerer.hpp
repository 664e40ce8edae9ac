#pragma once

// A request and its answer, at once or piece by piece, and who answers. On the thread of an http_service.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae {

namespace conversing {
class conversation;
}

/// What is known of a request before its body is read.
struct http_head {
  std::string method{};
  std::string target{};
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string local{}; ///< the numeric address that was dialled
  /// Once all was read, until it is answered: whether its client has closed the connection meanwhile, or its own side
  /// of it. Empty: nobody knows.
  std::function<bool()> has_left{};

  std::string_view header(std::string_view name) const; ///< the first of that name; empty: there is none
  std::size_t count(std::string_view name) const;
};

/// What of an answer comes later, piece by piece. On the service's thread.
class http_stream {
public:
  using piece = std::shared_ptr<const std::string>;

  /// `first` is sent before all that is added, of which `max_behind_bytes` may wait to be taken: a reader who is
  /// further behind is cut off. `sign_of_life`, unless it is empty, is sent when there is nothing for 15 s.
  http_stream(boost::asio::any_io_executor executor, std::vector<piece> first, std::size_t max_behind_bytes,
              std::string sign_of_life);

  void add(piece x);
  /// Nothing more is added; what was is sent yet.
  void end();

  /// Goes with the stream, which the service lets go of when all is sent, or nobody reads it any more. What holds the
  /// stream itself (to add to it) must do so weakly.
  std::shared_ptr<const void> source{};

private:
  friend class conversing::conversation;

  piece next();

  std::deque<piece> first_;
  std::deque<piece> added_;
  std::size_t behind_ = 0; ///< bytes of those
  const std::size_t max_behind_;
  const piece sign_of_life_;
  bool ended_ = false;
  bool over_ = false;             ///< the reader is gone, or too far behind
  bool is_watched_ = false;       ///< whether the reader hangs up
  std::function<void()> cut_off_; ///< ends what is being sent; empty: nothing is
  boost::asio::steady_timer bell_;
};

/// An open file, from its beginning, and what keeps it open.
struct http_file {
  int descriptor = -1;
  std::shared_ptr<const void> owner{};
};

/// One of body, file and stream.
struct http_reply {
  unsigned status = 200;
  std::vector<std::pair<std::string, std::string>> headers{}; ///< but Content-Length, Connection, Transfer-Encoding
  std::shared_ptr<const std::string> body{};
  std::optional<http_file> file{};
  std::shared_ptr<http_stream> stream{};
  bool is_last = false; ///< the connection ends with it; a stream then comes without chunks
};

/// Who answers. On the service's thread; must outlive the io_context's run.
class http_answerer {
public:
  virtual ~http_answerer() = default;

  /// What is answered instead of reading the request's body; none: it is read.
  virtual std::optional<http_reply> refusal(const http_head& head) = 0;

  /// Others are answered meanwhile. Must not throw.
  virtual boost::asio::awaitable<http_reply> answer(const http_head& head, std::string body) = 0;

  /// What is answered to what is no request (400), too late (408), too large (413, 431), or one connection too many
  /// (503, always the same).
  virtual http_reply error(unsigned status, const std::string& line) = 0;
};

} // namespace parcae
