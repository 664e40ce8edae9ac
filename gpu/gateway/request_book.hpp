#pragma once

// The requests that a gateway has taken: what is known of each, and what becomes of it.

#include "protocols/base/rule_table.hpp"
#include "protocols/schedule/request_row.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace parcae {

enum class request_phase : std::uint8_t {
  queued,  ///< waits for a pipeline
  running, ///< is in one
  over,    ///< and forgotten
};

std::string to_string(request_phase x);

enum class request_trigger : std::uint8_t {
  taken,    ///< a pipeline has room for it
  token,    ///< the one that follows what is known
  no_token, ///< its logits are not finite
  lost,     ///< its pipeline is over, or is connected anew
  threw,    ///< a pass with rows of it threw
  unserved, ///< no pipeline has taken it for too long
  gone,     ///< its client does not want it any more
  closed,   ///< the job is over, or the gateway
};

std::string to_string(request_trigger x);

/// Why there is no further token.
enum class request_end : std::uint8_t {
  length,     ///< it has all tokens that it may have
  stop,       ///< a token that ends answers came; it is no part of this one
  unserved,   ///< it waited too long, and no pipeline took it
  not_finite, ///< no token follows from its logits
  threw,      ///< it made a pass throw twice
  closed,     ///< there is no service any more
};

using request_phases = enum_set<request_phase>;

/// A trigger without a row is ignored.
using request_rule = table_row<request_phase, request_trigger>;

/// What a client asks for.
struct request_wish {
  std::vector<std::uint32_t> prompt; ///< not empty
  std::uint32_t max_tokens = 0;      ///< at least 1
  sampling how{};
};

struct book_limits {
  std::size_t queue = 1000;                 ///< requests that wait
  std::uint64_t wait_ms = 60'000;           ///< for a pipeline
  std::vector<std::uint32_t> stop_tokens{}; ///< sorted
};

/// Pure: no clock, thread, lock or socket. One call at a time; what it has to tell it tells before the call returns.
class request_book {
public:
  struct request {
    std::uint64_t id = 0;
    request_phase phase = request_phase::queued;
    std::vector<std::uint32_t> tokens; ///< the prompt, then the answer so far
    std::uint32_t prompt = 0;          ///< of these
    std::uint32_t most = 0;            ///< tokens it ends with
    sampling how{};
    std::uint64_t came_ms = 0;
    bool was_taken = false;     ///< by a pipeline: it does not end with that
    std::uint32_t computed = 0; ///< positions, at most, in any pipeline
    std::uint32_t suspect_to =
        0; ///< a pass threw that had this position of it, and no later one went well since; 0: none

    bool has_begun() const { return computed > 0; }
    bool is_suspect() const { return suspect_to > 0; }
  };

  /// What is told of requests; neither may call the book.
  struct listener {
    std::function<void(std::uint64_t id, std::uint32_t position, std::uint32_t token)> on_token;
    std::function<void(std::uint64_t id, request_end why)> on_end;
  };

  /// Ids begin behind `first`, so that those of two gateways differ.
  request_book(book_limits limits, listener tells, std::uint64_t first);
  request_book(const request_book&) = delete;

  void set_limits(book_limits x) { limits_ = std::move(x); }

  bool is_full() const { return queue_.size() >= limits_.queue; } ///< the queue
  /// None: it is full.
  std::optional<std::uint64_t> add(request_wish x, std::uint64_t now_ms);

  // What happens to it. Unknown ones are ignored.

  void taken(std::uint64_t id);
  /// The next token, at `position`. Returns whether it goes on; of another position nothing happens.
  bool token(std::uint64_t id, std::uint32_t position, std::uint32_t token);
  void no_token(std::uint64_t id);
  void lost(std::uint64_t id);
  /// The pass had its positions up to `last`.
  void threw(std::uint64_t id, std::uint32_t last, bool alone);
  /// Positions of it were computed: it has not thrown there.
  void went_well(std::uint64_t id, std::uint32_t last);
  void gone(std::uint64_t id);
  void close_all();
  /// Those that waited too long are over.
  void tick(std::uint64_t now_ms);

  const request* find(std::uint64_t id) const;
  /// In order of arrival.
  const std::set<std::uint64_t>& queue() const { return queue_; }
  std::size_t size() const { return all_.size(); }
  std::vector<std::uint64_t> begun() const; ///< those of which a pipeline may hold something

  static std::vector<request_rule> table();
  /// Called for each row taken, by its number and the phase it is taken from. For tests.
  std::function<void(std::size_t, request_phase)> observe;

private:
  struct trigger {
    request_trigger on;
    request& of;
    std::uint32_t position = 0, token = 0;
    bool alone = false;
  };
  using row = machine_row<request_phase, request_trigger, bool (*)(const request_book&, const trigger&),
                          void (*)(request_book&, const trigger&)>;
  static const std::vector<row> rows;

  friend struct gateway_faults; // of tests, which run the machines with a row that is wrong

  const std::vector<row>* rules_ = &rows;

  struct conditions;
  struct actions;

  request* known(std::uint64_t id);
  void happens(const trigger& x);

  book_limits limits_;
  const listener tells_;
  std::uint64_t newest_;
  std::map<std::uint64_t, request> all_;
  std::set<std::uint64_t> queue_;
};

} // namespace parcae
