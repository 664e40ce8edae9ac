#pragma once

// The pipelines that serve at present, as a gateway sees them: which requests are in each, and which rows go next.

#include "gpu/dataplane/pass_frames.hpp"
#include "gpu/gateway/request_book.hpp"
#include "protocols/schedule/pass_schedule.hpp"
#include "protocols/schedule/usual_times.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

enum class pipeline_phase : std::uint8_t {
  opening, ///< is being connected
  asking,  ///< is connected, and is asked what it holds
  ready,   ///< has requests
  drained, ///< takes nothing more; another generation follows
};

std::string to_string(pipeline_phase x);

enum class pipeline_trigger : std::uint8_t {
  connected, ///< with its first stage and its last
  held,      ///< an answer to what was asked
  tokens,    ///< an answer to the oldest pass
  drained,   ///< it said so
  threw,     ///< it said that a pass threw
  broken,    ///< a connection ended, or its answer makes no sense
  silent,    ///< nothing was heard of it for too long
};

std::string to_string(pipeline_trigger x);

using pipeline_phases = enum_set<pipeline_phase>;

/// As request_rule.
using pipeline_rule = table_row<pipeline_phase, pipeline_trigger>;

/// What a service's pipelines have in common.
struct service_shape {
  std::uint32_t depth = 1;            ///< stages
  std::uint32_t batch = 64;           ///< requests in one at once, at most pass_frame::max_draws
  std::uint32_t chunk = 64;           ///< rows of prompts in a pass
  std::vector<std::uint32_t> sizes{}; ///< of passes, rising, not empty, none above pass_frame::max_rows
};

/// What the pipelines have done so far; of those that are gone, too.
struct pipeline_counts {
  std::uint64_t passes = 0, rows = 0, tokens = 0;
  std::uint64_t repeated = 0; ///< positions computed again
  std::uint64_t broken = 0;   ///< times that a pipeline was connected anew
};

/// Pure, as the book. All times are of one clock that never goes back.
class pipelines {
public:
  /// What is to be done with a pipeline, by its number.
  struct doer {
    /// Connects with it, until another call says otherwise; then call connected(), with a number drawn.
    std::function<void(std::uint32_t)> connect;
    /// Ends its connections.
    std::function<void(std::uint32_t)> cut;
    /// Sends it this, which is not there afterwards. May not call back.
    std::function<void(std::uint32_t, const pass_frame&)> send;
  };

  /// The book outlives this.
  pipelines(request_book& book, doer does) : book_(book), does_(std::move(does)) {}
  pipelines(const pipelines&) = delete;

  /// From now on there are so many; none: nobody serves. Those before are over.
  void route(std::uint32_t count, service_shape shape, std::uint64_t now_ms);

  void connected(std::uint32_t pipeline, std::uint64_t epoch, std::uint64_t now_ms);
  void answered(std::uint32_t pipeline, const pass_answer& x, std::uint64_t now_ms);
  void broke(std::uint32_t pipeline, std::uint64_t now_ms);
  /// A request came, or is over by itself.
  void look(std::uint64_t now_ms);
  /// Its client has gone.
  void gone(std::uint64_t request, std::uint64_t now_ms);
  /// There is no service any more: no request is left.
  void close();
  /// To be called some times a second.
  void tick(std::uint64_t now_ms);

  std::uint32_t count() const { return static_cast<std::uint32_t>(all_.size()); }
  pipeline_phase phase_of(std::uint32_t pipeline) const { return all_.at(pipeline).phase; }
  std::uint32_t requests_in(std::uint32_t pipeline) const;
  /// Positions of these that were computed, or are on their way.
  std::uint64_t cached_in(std::uint32_t pipeline) const;
  bool any_ready() const;
  const pipeline_counts& counts() const { return counts_; }

  static std::vector<pipeline_rule> table();
  /// Called for each row taken, by its number and the phase it is taken from. For tests.
  std::function<void(std::size_t, pipeline_phase)> observe;

  static constexpr std::uint64_t least_silence_ms = 2'000;  ///< that ends a pipeline; or 20 usual passes
  static constexpr std::uint64_t first_silence_ms = 30'000; ///< the same before its first pass is known
  static constexpr std::uint64_t gathering_ms = 1'000;      ///< that requests wait for a pipeline that may hold them

private:
  struct pass {
    std::uint64_t number = 0;
    std::uint64_t sent_ms = 0;
    std::uint32_t size = 0;
    std::vector<pass_rows> rows;
  };
  struct pipeline {
    pipeline_phase phase = pipeline_phase::opening;
    std::optional<pass_schedule> schedule{}; ///< once it is ready
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;                       ///< of what was sent last in it
    std::uint64_t heard_ms = 0;                     ///< when anything came last
    double usual_ms = 0;                            ///< of a pass; 0: not known
    std::deque<std::vector<std::uint64_t>> asked{}; ///< and not answered, by number
    std::map<std::uint64_t, std::uint32_t> held{};  ///< by request, of those asked for
    std::uint64_t room = 0;                         ///< positions
    std::vector<std::uint64_t> over{};              ///< requests that are over, and not said
    std::deque<pass> under_way{};
  };
  struct trigger {
    pipeline_trigger on;
    std::uint32_t number; ///< of the pipeline
    pipeline& of;
    std::uint64_t now_ms;
    const pass_answer* answer = nullptr;
    std::uint64_t epoch = 0; ///< of `connected`
  };
  using row = machine_row<pipeline_phase, pipeline_trigger, bool (*)(const pipelines&, const trigger&),
                          void (*)(pipelines&, const trigger&)>;
  static const std::vector<row> rows;

  friend struct gateway_faults; // of tests, which run the machines with a row that is wrong

  const std::vector<row>* rules_ = &rows;

  struct conditions;
  struct actions;

  void happens(const trigger& x);
  /// Gives requests to pipelines, then passes.
  void fill(std::uint64_t now_ms);
  std::optional<std::size_t> place_for(const request_book::request& x, std::uint64_t now_ms) const;
  /// Of caches, that its requests may come to need.
  static std::uint64_t places_in(const pipeline& x);
  void enter(pipeline& in, const request_book::request& x);
  /// What it holds of these, without having them: it is told that they are over.
  template <class F>
  static void forget_held(pipeline& in, F which);
  void send_passes(std::uint32_t number, std::uint64_t now_ms);
  void send_pass(std::uint32_t number, const std::vector<pass_rows>& rows, std::uint64_t now_ms);
  void send(std::uint32_t number);
  void give_back(pipeline& of);

  request_book& book_;
  const doer does_;
  service_shape shape_;
  usual_times times_; ///< until there are pipelines of another shape
  std::vector<pipeline> all_;
  std::uint64_t routed_ms_ = 0;
  std::uint64_t ticked_ms_ = 0;
  pipeline_counts counts_;
  pass_frame frame_; ///< used again
};

} // namespace parcae
