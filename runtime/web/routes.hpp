#pragma once

// What is answered to which request.

#include "runtime/web/access.hpp"
#include "runtime/web/actions.hpp"
#include "runtime/web/board.hpp"

#include <functional>
#include <string>
#include <vector>

namespace parcae {

/// One of the clusters that are shown, by a name of letters, digits and "-_.".
struct served_cluster {
  std::string name;
  web_board& board;
  web_actions& actions;
};

/// Resources of the first cluster have no prefix; of each, the first too, all stands below /clusters/NAME.
class web_routes {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// At least one cluster.
  web_routes(web_access access, std::vector<served_cluster> clusters) :
      access_(std::move(access)), clusters_(std::move(clusters)) {}

  const std::vector<served_cluster>& clusters() const { return clusters_; }

  /// Before the body is read. Throws web_error.
  void admit(const web_head& head, const std::string& local, time_point now);

  /// Either an answer, or what to do on a thread that may wait. Throws web_error.
  struct result {
    web_answer now;
    std::function<web_answer()> later; ///< throws web_error
    std::size_t cluster = 0;           ///< that it asks
  };
  result take(const web_head& head, std::string body, time_point now);

private:
  /// A request's path without the cluster that it names, and which that is. Throws web_error.
  struct place {
    web_target target;
    std::size_t cluster = 0;
  };
  place place_of(std::string_view target) const;
  result look(const place& x, const web_head& head, time_point now);
  result look_at_job(const web_target& target, const web_head& head, web_actions& actions);
  result change(const web_target& target, const web_head& head, std::string body, web_actions& actions);
  std::string list_of_clusters() const;

  const web_access access_;
  const std::vector<served_cluster> clusters_;
  pace_limit changes_{10};
};

} // namespace parcae
