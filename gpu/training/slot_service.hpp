#pragma once

// What a slot has while it serves, from one generation to the next.

#include "gpu/training/generation_state.hpp"

#include <chrono>
#include <memory>

namespace parcae {

/// The executor's main thread.
class slot_service {
public:
  /// `options` outlive it.
  slot_service(const executor_options& options, const tensor_device& on) : options_(options), on_(on) {}

  /// Of a rank whose layers are in the store, which both outlive it. Caches of its layers stay: the gateway asks what
  /// they hold. Throws what LibTorch does.
  std::unique_ptr<stage_service> make(generation_state& of, const layer_store& store,
                                      std::shared_ptr<const row_proof> proof);

  /// At ACTIVATE, before its shards are moved: caches that others go on with leave, and those of layers that its stage
  /// does not have go.
  void let_go(generation_state& of, const std::shared_ptr<const row_proof>& proof);

  /// A turn of its service, as that has it. Before, each second, SERVED. Throws if what was computed may have other
  /// bits.
  bool turn(generation_state& of, std::uint64_t peak_bytes);

  /// Its caches go.
  void forget(const job_id& job);

private:
  void make_room_for(const generation_state& of, const row_proof& proof);
  void say(generation_state& of, std::uint64_t peak_bytes);
  stage_layers layers_of(const generation_state& of, const layer_store& store) const;

  const executor_options& options_;
  const tensor_device on_;
  job_id job_;
  std::uint64_t bytes_ = 0;
  std::shared_ptr<cache_store> caches_;
  std::chrono::steady_clock::time_point said_;
};

} // namespace parcae
