#pragma once

// What is answered to which request.

#include "runtime/web/access.hpp"
#include "runtime/web/actions.hpp"
#include "runtime/web/board.hpp"

#include <functional>

namespace parcae {

class web_routes {
public:
  using time_point = std::chrono::steady_clock::time_point;

  web_routes(web_access access, web_board& board, web_actions& actions) :
      access_(std::move(access)), board_(board), actions_(actions) {}

  /// Before the body is read. Throws web_error.
  void admit(const web_head& head, const std::string& local, time_point now);

  /// Either an answer, or what to do on a thread that may wait. Throws web_error.
  struct result {
    web_answer now;
    std::function<web_answer()> later; ///< throws web_error
  };
  result take(const web_head& head, std::string body, time_point now);

private:
  result look(const web_target& target, const web_head& head, time_point now);
  result look_at_job(const web_target& target);
  result change(const web_target& target, const web_head& head, std::string body);

  const web_access access_;
  web_board& board_;
  web_actions& actions_;
  pace_limit changes_{10};
};

} // namespace parcae
