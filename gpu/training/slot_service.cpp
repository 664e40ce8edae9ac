#include "gpu/training/slot_service.hpp"

#include "gpu/training/usual_bits.hpp"

#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

stage_place place_of(const generation_state& of, const stage_layers& layers) {
  const auto& job = of.what.specification;
  stage_place x{.rank = of.self,
                .stage = of.what.target.stage_of(of.self),
                .depth = of.what.target.depth,
                .comm = of.comm.get(),
                .gate = of.gate.get(),
                .bounds = {job.context(), job.model.vocabulary},
                .input = {}};
  if (!x.is_first()) {
    x.input = of.model.layers[layers.first - 1].output;
    x.input.front() = 1; // a position of the sequence
  }
  return x;
}

} // namespace

stage_layers slot_service::layers_of(const generation_state& of, const layer_store& store) const {
  const auto& grid = of.what.target;
  const auto stage = grid.stage_of(of.self);
  stage_layers x{.all = make_layers(of.what.specification.model, on_),
                 .first = grid.first_layer[stage],
                 .last = grid.first_layer[stage + 1],
                 .parameters = {},
                 .buffers = {}};
  for (auto i = x.first; i < x.last; ++i) {
    x.parameters.push_back(views_of(of.model.layers[i], store.at(i).parameters));
    x.buffers.push_back(store.at(i).buffers);
  }
  return x;
}

std::unique_ptr<stage_service> slot_service::make(generation_state& of, const layer_store& store,
                                                  std::shared_ptr<const row_proof> proof) {
  if (!proof)
    throw std::runtime_error("the model was not loaded");
  auto layers = layers_of(of, store);
  make_room_for(of, *proof);
  caches_->compute(layers.first, layers.last);
  said_ = {};
  auto where = place_of(of, layers);
  return std::make_unique<stage_service>(std::move(where), std::move(layers), std::move(proof), caches_, on_,
                                         of.hooks_of_service(options_));
}

void slot_service::let_go(generation_state& of, const std::shared_ptr<const row_proof>& proof) {
  const auto& what = of.what;
  if (!what.specification.serves())
    return;
  if (of.is_rank() && proof)
    make_room_for(of, *proof);
  const auto mine = job_ == what.job ? caches_ : nullptr;
  if (of.caches)
    of.caches->begin(mine);
  if (!mine)
    return;
  const auto stage = what.target.stage_of(of.self);
  const auto& first = what.target.first_layer;
  of.is_rank() ? mine->compute(first[stage], first[stage + 1]) : mine->compute(0, 0);
}

void slot_service::make_room_for(const generation_state& of, const row_proof& proof) {
  const auto bytes = of.what.specification.serve.cache_bytes;
  if (caches_ && job_ == of.what.job && bytes_ == bytes)
    return;
  caches_.reset(); // before there are others
  caches_ = std::make_shared<cache_store>(proof.shapes, bytes, on_);
  job_ = of.what.job;
  bytes_ = bytes;
}

bool slot_service::turn(generation_state& of, std::uint64_t peak_bytes) {
  if (steady::now() - said_ >= std::chrono::seconds(1))
    say(of, peak_bytes);
  return of.service->turn();
}

void slot_service::say(generation_state& of, std::uint64_t peak_bytes) {
  require_usual_bits(on_, options_);
  said_ = steady::now();
  auto did = of.service->take_figures();
  options_.report_to(served{of.what.next, did.passes, did.rows, did.pass_ms, caches_->blocks(), caches_->free_blocks(),
                            peak_bytes, std::move(did.by_size)});
}

void slot_service::forget(const job_id& job) {
  if (job_ == job)
    caches_.reset();
}

} // namespace parcae
