#include "gpu/serving/stage_service.hpp"

#include "gpu/serving/sampler.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace parcae {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr auto slice = 10ms; ///< of a wait that something else may end
/// Between stages something goes each beat. Who stands still is found by the manager; this only bounds the wait if that
/// is gone, too.
constexpr std::chrono::hours round_limit{1};
/// A gateway that takes no answers for so long is as good as gone.
constexpr auto gateway_limit = 2s;

/// Whether it is done by then; or has failed.
bool done_within(communicator& on, const ticket& x, std::chrono::milliseconds limit) {
  try {
    on.wait(x, limit);
  } catch (const communication_error&) {
    return on.done(x);
  }
  return true;
}

} // namespace

stage_service::stage_service(stage_place where, stage_layers layers, std::shared_ptr<const row_proof> proof,
                             std::shared_ptr<cache_store> caches, const tensor_device& on, hooks x) :
    where_(std::move(where)),
    layers_(std::move(layers)), proof_(std::move(proof)), caches_(std::move(caches)), on_(on), hooks_(std::move(x)),
    passes_(layers_, *proof_, *caches_, on_) {}

bool stage_service::turn() {
  if (where_.is_first())
    listen();
  else
    receive();
  open_epoch();
  const auto number = frame_.number;
  std::exception_ptr threw;
  try {
    if (frame_.kind == pass_frame_kind::rows)
      compute();
    else if (frame_.kind == pass_frame_kind::held)
      answer_held();
  } catch (const communication_error&) {
    throw;
  } catch (const std::exception&) {
    threw = std::current_exception();
    frame_ = {.kind = pass_frame_kind::failed, .epoch = epoch_, .number = number};
  }
  if (where_.is_last())
    answer();
  else
    pass_on();
  if (threw)
    std::rethrow_exception(threw);
  return frame_.kind != pass_frame_kind::drained;
}

// --- what comes

// Of stage 0.
void stage_service::listen() {
  const auto end = steady::now() + beat;
  do {
    hooks_.check();
    if (stop_) {
      frame_ = {.kind = pass_frame_kind::drained, .epoch = epoch_};
      return;
    }
    if (auto newest = where_.gate->newest(pass_end::rows); newest != rows_) {
      rows_ = std::move(newest);
      rows_came_ = 0;
      next_rows_.reset();
    }
    if (!rows_)
      std::this_thread::sleep_for(slice);
    else if (hear_gateway())
      return;
  } while (steady::now() < end);
  frame_ = {.kind = pass_frame_kind::idle};
}

/// Whether a frame has come. A connection that ends, or says what is not understood, is no failure of the generation:
/// the gateway connects anew.
bool stage_service::hear_gateway() {
  if (!next_rows_)
    next_rows_ = rows_->receive(pass_peer, pass_tag(rows_came_), incoming_);
  try {
    if (!done_within(*rows_, next_rows_, slice))
      return false;
    rows_->wait(next_rows_, slice);
    next_rows_.reset();
    ++rows_came_;
    decode(std::span<const std::byte, pass_frame_bytes>(incoming_), where_.bounds, frame_);
    if (frame_.kind == pass_frame_kind::drained || frame_.kind == pass_frame_kind::failed)
      throw communication_error("a gateway says what only stages do");
    return true;
  } catch (const communication_error&) {
    next_rows_.reset();
    rows_->abort();
    std::this_thread::sleep_for(slice);
    return false;
  }
}

void stage_service::receive() {
  const auto before = where_.rank - 1;
  where_.comm->wait(where_.comm->receive(before, pass_tag(frames_), incoming_), round_limit);
  decode(std::span<const std::byte, pass_frame_bytes>(incoming_), where_.bounds, frame_);
  if (frame_.kind == pass_frame_kind::rows) {
    auto shape = where_.input;
    shape.insert(shape.begin(), frame_.size);
    values_ = at::empty(shape, on_.floats());
    where_.comm->wait(where_.comm->receive(before, {channel::activation, frames_, 0}, on_.memory_of(values_)),
                      round_limit);
  }
  if (where_.is_last())
    ++frames_; // else it counts what goes on
}

// --- what is done

void stage_service::open_epoch() {
  const bool of_gateway = frame_.kind == pass_frame_kind::rows || frame_.kind == pass_frame_kind::held;
  if (of_gateway && frame_.epoch != epoch_) {
    epoch_ = frame_.epoch;
    asked_.clear();
    entered_.clear();
    may_forget_ = true;
  }
  for (const auto request : frame_.over) {
    caches_->release(request);
    asked_.erase(request);
    entered_.erase(request);
  }
}

void stage_service::answer_held() {
  frame_.room = std::min(frame_.room, caches_->positions());
  for (auto& x : frame_.rows) {
    x.position = std::min(x.position, caches_->held(x.request));
    asked_.insert(x.request);
  }
}

void stage_service::compute() {
  const auto began = steady::now();
  hooks_.before_pass(frame_.number);
  if (std::exchange(may_forget_, false))
    caches_->release_others(asked_);
  make_room();
  std::vector<std::uint32_t> wanted;
  if (where_.is_last())
    for (const auto& x : frame_.draws)
      wanted.push_back(x.row);
  values_ = passes_.run(frame_.rows, frame_.size, std::move(values_), wanted);
  if (where_.is_last()) {
    answer_.tokens.clear();
    const auto logits = wanted.empty() ? at::Tensor() : hooks_.on_host(values_.contiguous());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto& row = frame_.rows[wanted[i]];
      const auto all = static_cast<std::size_t>(logits.size(-1));
      auto token = pass_answer::no_token;
      try {
        token = token_of({logits.data_ptr<float>() + i * all, all}, frame_.draws[i].how, row.position + 1);
      } catch (const sampling_error&) { // that is this request's end, and no other's
      }
      answer_.tokens.push_back({row.request, row.position + 1, token});
    }
  }
  auto& sum = by_size_[frame_.size];
  ++sum.passes;
  sum.rows += frame_.rows.size();
  sum.ms += std::chrono::duration<double, std::milli>(steady::now() - began).count();
}

/// Rows of a request follow each other. The gateway gives no more requests than there is room for; what none of these
/// has is dropped when they need it.
void stage_service::make_room() {
  for (std::size_t i = 0; i < frame_.rows.size(); ++i) {
    const auto& x = frame_.rows[i];
    if (i + 1 < frame_.rows.size() && frame_.rows[i + 1].request == x.request)
      continue;
    entered_.insert(x.request);
    if (caches_->reserve(x.request, x.position + 1))
      continue;
    caches_->release_others(entered_);
    if (!caches_->reserve(x.request, x.position + 1))
      throw std::invalid_argument("the caches have no room for " + std::to_string(x.position + 1) + " positions");
  }
}

// --- what goes

void stage_service::pass_on() {
  auto& x = departures_[frames_ % departures_.size()];
  for (const auto& sent : std::exchange(x.tickets, {}))
    where_.comm->wait(sent, round_limit);
  const auto next = where_.rank + 1;
  encode(frame_, x.bytes);
  x.tickets.push_back(where_.comm->send(next, pass_tag(frames_), x.bytes));
  if (frame_.kind == pass_frame_kind::rows) {
    x.tensor = values_.contiguous();
    x.tickets.push_back(where_.comm->send(next, {channel::activation, frames_, 0}, on_.memory_of(x.tensor)));
  }
  ++frames_;
}

void stage_service::answer() {
  if (auto newest = where_.gate->newest(pass_end::tokens); newest != tokens_) {
    for (auto& x : returns_)
      x.sent.reset();
    tokens_ = std::move(newest);
    tokens_went_ = 0;
  }
  if (!tokens_)
    return;
  auto* to = next_return();
  if (!to)
    return;
  answer_.kind = frame_.kind;
  answer_.epoch = frame_.epoch;
  answer_.number = frame_.number;
  answer_.room = frame_.room;
  if (frame_.kind == pass_frame_kind::held)
    answer_.tokens = frame_.rows;
  else if (frame_.kind != pass_frame_kind::rows)
    answer_.tokens.clear();
  encode(answer_, to->bytes);
  to->sent = tokens_->send(pass_peer, pass_tag(tokens_went_++), to->bytes);
}

/// Null: the gateway takes none.
stage_service::return_trip* stage_service::next_return() {
  auto& x = returns_[tokens_went_ % returns_.size()];
  if (!x.sent || tokens_->done(x.sent))
    return &x;
  if (frame_.kind == pass_frame_kind::idle)
    return nullptr; // it may stand still, and go on later
  if (done_within(*tokens_, x.sent, gateway_limit))
    return &x;
  tokens_->abort();
  return nullptr;
}

service_figures stage_service::take_figures() {
  service_figures result;
  for (const auto& [size, x] : std::exchange(by_size_, {})) {
    result.passes += x.passes;
    result.rows += x.rows;
    result.pass_ms += x.ms;
    if (result.by_size.size() < most_pass_sizes)
      result.by_size.push_back({size, x.passes, x.ms / static_cast<double>(x.passes)});
  }
  result.pass_ms /= static_cast<double>(std::max<std::uint64_t>(1, result.passes));
  return result;
}

} // namespace parcae
