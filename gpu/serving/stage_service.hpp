#pragma once

// What a rank does while it serves: frames of passes come from the stage before or from the gateway, and go on to the
// next stage or back.

#include "gpu/dataplane/data_port.hpp"
#include "gpu/dataplane/pass_frames.hpp"
#include "gpu/serving/stage_passes.hpp"
#include "protocols/values/serving.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace parcae {

/// Where a stage is in its pipeline, and whom it talks to. What it points to outlives all copies.
struct stage_place {
  std::uint32_t rank = 0; ///< the stages beside it are the ranks beside it
  std::uint32_t stage = 0, depth = 1;
  communicator* comm = nullptr; ///< of the generation
  pass_gate* gate = nullptr;    ///< for the gateway; null if it is neither the first stage nor the last
  pass_bounds bounds{};
  std::vector<std::int64_t> input{}; ///< of a stage that is not the first: shape of one row

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == depth; }
};

/// What it did since it was asked last.
struct service_figures {
  std::uint64_t passes = 0, rows = 0;
  double pass_ms = 0;                ///< mean
  std::vector<sized_passes> by_size; ///< smaller ones first
};

/// The thread that computes; but for request_stop, and for what ends its connections. After an exception the
/// communicator must be aborted before this is destroyed.
class stage_service {
public:
  /// How long stage 0 waits for the gateway before it says that there is nothing.
  static constexpr std::chrono::milliseconds beat{200};

  struct hooks {
    /// The values of a tensor of the device, once it has computed them. May throw what ends the turn.
    std::function<at::Tensor(const at::Tensor&)> on_host;
    /// Throws if the generation is to end. Called often while nothing comes.
    std::function<void()> check;
    /// Before each pass, with its number: tests may let it throw.
    std::function<void(std::uint64_t)> before_pass;
  };

  stage_service(stage_place where, stage_layers layers, std::shared_ptr<const row_proof> proof,
                std::shared_ptr<cache_store> caches, const tensor_device& on, hooks x);

  /// One frame, which all stages take in the same order: at most a beat apart, so that a rank hears what it is told.
  /// False: it was the last one, as stage 0 was asked to stop. Throws communication_error if a stage beside it is gone,
  /// and what a pass throws, when the gateway has been told which. The gateway itself may be away.
  bool turn();

  /// Any thread. Counts at stage 0: it takes no more rows from its next turn on.
  void request_stop() { stop_ = true; }

  service_figures take_figures();
  const cache_store& caches() const { return *caches_; }

private:
  /// What goes to one side, with the memory that it goes from.
  struct departure {
    std::array<std::byte, pass_frame_bytes> bytes;
    at::Tensor tensor;
    std::vector<ticket> tickets;
  };
  struct return_trip {
    std::array<std::byte, pass_answer_bytes> bytes;
    ticket sent;
  };

  void listen();
  bool hear_gateway();
  void receive();
  void open_epoch();
  void compute();
  void make_room();
  void answer_held();
  void pass_on();
  void answer();
  return_trip* next_return();

  const stage_place where_;
  const stage_layers layers_;
  const std::shared_ptr<const row_proof> proof_;
  const std::shared_ptr<cache_store> caches_;
  const tensor_device on_;
  const hooks hooks_;
  stage_passes passes_;
  std::atomic<bool> stop_ = false;

  // Of the frame in hand.
  pass_frame frame_;
  pass_answer answer_;
  at::Tensor values_; ///< activations, then what the stage makes of them

  // Connections.
  std::uint64_t frames_ = 0; ///< between two stages, from the generation's beginning on
  std::array<std::byte, pass_frame_bytes> incoming_;
  std::shared_ptr<communicator> rows_, tokens_; ///< with the gateway; null: none
  std::uint64_t rows_came_ = 0, tokens_went_ = 0;
  ticket next_rows_; ///< null: not posted
  std::array<departure, 2> departures_;
  std::array<return_trip, 4> returns_;

  // Of the gateway's connection.
  std::uint64_t epoch_ = 0;
  bool may_forget_ = false;         ///< no rows came in it yet: all that was asked for was asked
  std::set<std::uint64_t> asked_;   ///< what it was asked for
  std::set<std::uint64_t> entered_; ///< what it has computed, and is not over

  // Of passes since they were asked for.
  struct pass_sum {
    std::uint64_t passes = 0, rows = 0;
    double ms = 0;
  };
  std::map<std::uint32_t, pass_sum> by_size_;
};

} // namespace parcae
