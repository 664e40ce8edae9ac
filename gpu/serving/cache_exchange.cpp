#include "gpu/serving/cache_exchange.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

} // namespace

cache_exchange::cache_exchange(const prepare& what, std::uint32_t self, std::unique_ptr<communicator> over,
                               const tensor_device& on, hook before_sending) :
    what_(what),
    self_(self), on_(on), before_sending_(std::move(before_sending)), over_(std::move(over)) {}

cache_exchange::~cache_exchange() {
  abort();
  over_.reset(); // until then memory of a device may be in use
  for (const auto& x : leaving_)
    caches_->give_back(x);
}

void cache_exchange::abort() noexcept {
  over_->abort();
}

// --- what leaves

void cache_exchange::begin(std::shared_ptr<cache_store> caches) {
  caches_ = std::move(caches);
  for (std::size_t i = 0; i < what_.caches.size(); ++i)
    if (what_.caches[i].source == self_)
      send(i);
}

void cache_exchange::send(std::size_t number) {
  const auto& move = what_.caches[number];
  cache_frame frame;
  if (caches_)
    frame.requests = caches_->held_in(move.first_layer, move.last_layer);
  frame.requests.resize(std::min(frame.requests.size(), cache_frame::max_requests));
  std::uint32_t n = 0;
  const auto post = [&](const_memory_view x) {
    sent_.push_back(over_->send(move.destination, cache_tag(number, n++), x));
  };
  encode(frame, *frames_.emplace_back(std::make_unique<frame_bytes>()));
  post(*frames_.back());
  std::uint32_t count = 0;
  for (const auto& x : frame.requests) {
    before_sending_(++count);
    for (const auto layer : caches_->keeping(move.first_layer, move.last_layer)) {
      const auto& blocks = leaving_.emplace_back(caches_->take(x.request, layer));
      for (std::size_t i = 0; i < blocks_of(x.positions); ++i)
        post(on_.memory_of(caches_->block(blocks.at(i), layer)));
    }
  }
}

// --- what comes

void cache_exchange::finish(std::chrono::milliseconds limit) {
  const auto end = steady::now() + limit;
  std::set<std::uint32_t> silent; // sources
  for (std::size_t i = 0; i < what_.caches.size(); ++i) {
    const auto& move = what_.caches[i];
    if (move.destination != self_ || !caches_ || silent.contains(move.source))
      continue;
    try {
      expect(i, end);
    } catch (const communication_error&) {
      silent.insert(move.source);
    }
  }
  bool all = silent.empty();
  for (const auto& x : arrivals_)
    for (const auto& block : x.blocks)
      all = wait(block, end) && all;
  for (const auto& x : sent_)
    all = wait(x, end) && all;
  if (!all)
    abort(); // nothing is written into the pool any more
  for (const auto& x : arrivals_)
    note(x);
}

/// Of one move: who comes, then its blocks into the pool.
void cache_exchange::expect(std::size_t number, time_point end) {
  const auto& move = what_.caches[number];
  auto& bytes = *frames_.emplace_back(std::make_unique<frame_bytes>());
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady::now());
  over_->wait(over_->receive(move.source, cache_tag(number, 0), bytes), std::max(left, std::chrono::milliseconds(0)));
  const auto& job = what_.specification;
  cache_frame frame;
  decode(std::span<const std::byte, cache_frame_bytes>(bytes), {job.context(), job.model.vocabulary}, frame);
  std::uint32_t n = 1;
  for (const auto& x : frame.requests)
    for (const auto layer : caches_->keeping(move.first_layer, move.last_layer))
      expect(number, x, layer, n);
}

void cache_exchange::expect(std::size_t number, const held_request& x, std::uint32_t layer, std::uint32_t& n) {
  const auto source = what_.caches[number].source;
  const auto into = caches_->place(x.request, layer, x.positions);
  arrival came{x, layer, {}};
  for (std::size_t i = 0; i < blocks_of(x.positions); ++i) {
    const auto to = into.empty() ? unused_of(source, layer) : caches_->block(into[i], layer);
    came.blocks.push_back(over_->receive(source, cache_tag(number, n++), on_.memory_of(to)));
  }
  if (!into.empty())
    arrivals_.push_back(std::move(came));
}

/// What one source sends comes one behind the other.
at::Tensor cache_exchange::unused_of(std::uint32_t source, std::uint32_t layer) {
  auto& x = unused_[source];
  if (!x.defined())
    x = at::empty({caches_->largest_block_values()}, on_.floats());
  return x.narrow(0, 0, caches_->block_values(layer));
}

/// Whether it is done by then, and has not failed.
bool cache_exchange::wait(const ticket& x, time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady::now());
  try {
    over_->wait(x, std::max(left, std::chrono::milliseconds(0)));
    return true;
  } catch (const communication_error&) {
    return false;
  }
}

/// Blocks come in order. Of one that its request had before, what came has the same bits.
void cache_exchange::note(const arrival& x) {
  std::uint32_t blocks = 0;
  for (const auto& each : x.blocks) {
    if (!wait(each, steady::now()))
      break;
    ++blocks;
  }
  const auto positions = std::min(x.of.positions, blocks * std::uint32_t{block_positions});
  caches_->note_held(x.of.request, x.layer, positions);
  received_ += positions;
}

} // namespace parcae
