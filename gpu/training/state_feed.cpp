#include "gpu/training/state_feed.hpp"

#include "gpu/training/tensor_account.hpp"
#include "protocols/base/crash_stack.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace parcae {

namespace {

constexpr std::chrono::hours sending_limit{1}; ///< the conductor's limits are shorter

constexpr double share_of_step = 0.5; ///< that layers which begin to be followed may keep a link busy

/// Of a copy that may have to end: some 100 µs.
constexpr std::size_t piece_bytes = std::size_t{1} << 18;

double ms_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
}

} // namespace

state_feed::state_feed(communicator& over, const prepare& what, std::uint32_t to, std::vector<std::uint32_t> layers,
                       const model_description& model, const tensor_device& on, const executor_options& options,
                       std::function<void(const std::exception_ptr&)> fails) :
    over_(over),
    what_(what), to_(to), order_(std::move(layers)), model_(model), on_(on), options_(options),
    fails_(std::move(fails)) {
  for (const auto layer : order_) {
    layers_.emplace(layer, standing::at_rest);
    set_bytes_ += gradient_bytes(layer);
  }
  thread_ = std::thread([this, account = tensor_account::of_this_thread()] {
    use_crash_stack();
    const tensor_account::scope counted(account); // copies that leave
    run();
  });
}

state_feed::~state_feed() {
  {
    const lock held(mutex_);
    closed_ = true;
    changes_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::uint64_t state_feed::gradient_bytes(std::uint32_t layer) const {
  return model_.layers[layer].parameters() * sizeof(float);
}

void state_feed::put(message x) {
  queue_.push_back(std::move(x));
  changed_.notify_all();
}

void state_feed::complete(const version& at, const gradient_of_layer& gradient) {
  const lock held(mutex_);
  if (failure_)
    return;
  for (const auto layer : order_)
    if (is_followed(layer) && !ahead_.contains(layer))
      put_gradient(at, layer, gradient);
  ahead_.clear();
  keep_to_one_set();
}

void state_feed::complete(const version& at, std::uint32_t layer, const gradient_of_layer& gradient) {
  const lock held(mutex_);
  if (failure_ || !layers_.contains(layer) || !is_followed(layer))
    return;
  ahead_.insert(layer);
  put_gradient(at, layer, gradient);
  keep_to_one_set();
}

void state_feed::put_gradient(const version& at, std::uint32_t layer, const gradient_of_layer& gradient) {
  put({{.kind = feed_kind::gradient, .layer = layer, .at = at}, {gradient(layer)}});
  unsent_[layer] += gradient_bytes(layer);
}

void state_feed::keep_to_one_set() {
  const auto bytes = [](std::uint64_t sum, const auto& x) { return sum + x.second; };
  while (std::accumulate(unsent_.begin(), unsent_.end(), std::uint64_t{0}, bytes) > set_bytes_) {
    std::optional<std::uint32_t> most; // what is cold has one on its way, and no more
    for (const auto& [layer, bytes] : unsent_)
      if (is_followed(layer) && (!most || bytes > unsent_.at(*most)))
        most = layer;
    if (!most)
      break;
    grow_cold(*most);
  }
}

// What of it is not on its way yet.
void state_feed::drop(std::uint32_t layer, standing becomes) {
  layers_.at(layer) = becomes;
  const auto goes = [layer](const message& x) { return !x.payload.empty() && x.note.layer == layer; };
  for (const auto& x : queue_) {
    if (goes(x) && x.note.kind == feed_kind::gradient)
      unsent_.at(layer) -= gradient_bytes(layer);
    if (goes(x) && x.note.kind == feed_kind::base)
      --unsent_bases_;
  }
  std::erase_if(queue_, goes);
}

void state_feed::grow_cold(std::uint32_t layer) {
  drop(layer, standing::cold);
  queue_.push_front({{.kind = feed_kind::cold, .layer = layer}, {}});
  changed_.notify_all();
}

void state_feed::end_copying(standing becomes) {
  changes_ = true;
  std::set<std::uint32_t> layers;
  if (copying_)
    layers.insert(*copying_);
  for (const auto& x : queue_)
    if (x.is_live)
      layers.insert(x.note.layer);
  for (const auto layer : layers)
    if (is_followed(layer)) {
      if (becomes == standing::cold)
        grow_cold(layer);
      else
        drop(layer, becomes);
    }
}

// Before what is waiting: with it gradients that have come can be applied.
void state_feed::decided(const feed_note& x) {
  lock held(mutex_);
  end_copying(standing::at_rest);
  while (copying_)
    held.wait(changed_);
  if (failure_)
    return;
  queue_.push_front({x, {}});
  changed_.notify_all();
}

void state_feed::applied(const layer_store& held, const version& at, double step_ms) {
  for (const auto layer : order_)
    if (const auto& state = held.at(layer); state.buffers.defined()) {
      const lock exclusive(mutex_);
      if (!is_followed(layer))
        continue;
      try {
        put({{.kind = feed_kind::buffers, .layer = layer, .at = at}, {copy_of(state.buffers)}});
      } catch (const c10::Error& e) { // of memory
        on_.note_end(e);
        grow_cold(layer);
      }
    }
  begin_layers(held, at, step_ms);
}

void state_feed::begin_layers(const layer_store& held, const version& at, double step_ms) {
  const bool on_host = on_.of().facts().host;
  double allowed = 0;
  std::vector<std::uint32_t> at_rest;
  {
    const lock exclusive(mutex_);
    changes_ = false;
    if (failure_ || unsent_bases_ > 0)
      return;
    if (sending_ms_ > 0)
      allowed = share_of_step * step_ms * static_cast<double>(sent_bytes_) / sending_ms_;
    if (!on_host) // which keeps copies of all that it begins
      allowed = std::min(allowed, static_cast<double>(set_bytes_));
    for (const auto layer : order_)
      if (layers_.at(layer) == standing::at_rest)
        at_rest.push_back(layer);
  }
  double begun = 0;
  for (const auto layer : at_rest) {
    auto parts = held.at(layer).parts();
    const auto bytes = std::accumulate(parts.begin(), parts.end(), 0.0, [](double sum, const at::Tensor& x) {
      return sum + static_cast<double>(x.nbytes());
    });
    if (begun > 0 && begun + bytes > allowed)
      return;
    begun += bytes;
    bool has_room = true;
    try {
      if (!on_host)
        for (auto& x : parts)
          x = copy_of(x);
    } catch (const c10::Error& e) { // of memory: it is moved after the stop
      on_.note_end(e);
      has_room = false;
    }
    const lock exclusive(mutex_);
    if (!has_room)
      return grow_cold(layer);
    layers_.at(layer) = standing::followed;
    ++unsent_bases_;
    put({{.kind = feed_kind::base, .layer = layer, .at = at}, std::move(parts), on_host});
  }
}

at::Tensor state_feed::copy_of(const at::Tensor& x) {
  if (!on_.of().facts().host && x.device().is_cpu())
    return x.clone();
  auto copy = at::empty_like(x);
  on_.compute().copy(copy.data_ptr(), x.const_data_ptr(), x.nbytes());
  return copy;
}

std::set<std::uint32_t> state_feed::end(const version& at) {
  std::set<std::uint32_t> result;
  lock held(mutex_);
  end_copying(standing::cold);
  while (copying_)
    held.wait(changed_);
  // What passes read comes sooner the usual way: it is as large as a gradient.
  std::set<std::uint32_t> waiting;
  std::map<std::uint32_t, int> gradients;
  if (begun_base_ && is_followed(*begun_base_))
    waiting.insert(*begun_base_);
  for (const auto& x : queue_)
    if (x.note.kind == feed_kind::base || (x.note.kind == feed_kind::gradient && ++gradients[x.note.layer] > 1))
      waiting.insert(x.note.layer);
  for (const auto layer : waiting)
    grow_cold(layer);
  for (const auto layer : order_)
    if (is_followed(layer))
      result.insert(layer);
  put({{.kind = feed_kind::end, .at = at}, {}});
  return result;
}

void state_feed::wait_sent() {
  lock held(mutex_);
  while (!ended_ && !failure_ && !closed_)
    held.wait(changed_);
  if (failure_)
    std::rethrow_exception(failure_);
}

void state_feed::run() {
  try {
    for (;;) {
      auto next = take();
      while (next && next->is_live && !copy_live(*next))
        next = take();
      if (!next)
        return;
      send(*next);
      if (next->note.kind != feed_kind::end)
        continue;
      const lock held(mutex_);
      ended_ = true;
      changed_.notify_all();
      return;
    }
  } catch (const std::exception& e) {
    on_.note_end(e); // now: nobody may be told
    fail(std::current_exception());
  } catch (...) {
    fail(std::current_exception());
  }
}

void state_feed::fail(const std::exception_ptr& why) {
  {
    const lock held(mutex_);
    failure_ = why;
    copying_.reset();
    queue_.clear();
    changed_.notify_all();
    if (closed_)
      return;
  }
  fails_(why);
}

std::optional<state_feed::message> state_feed::take() {
  lock held(mutex_);
  while (queue_.empty() && !closed_)
    held.wait(changed_);
  if (closed_)
    return {};
  auto result = std::move(queue_.front());
  queue_.pop_front();
  if (result.is_live)
    copying_ = result.note.layer;
  if (result.note.kind == feed_kind::base)
    begun_base_ = result.note.layer;
  return result;
}

// False: the layer changes before all is copied, or there is no memory for it, and then it goes cold.
bool state_feed::copy_live(message& x) {
  fault("feed_copy_begins", x.note);
  const auto layer = x.note.layer;
  bool has_room = true;
  try {
    for (auto& part : x.payload) {
      const auto from = std::exchange(part, at::empty_like(part));
      const auto* begin = static_cast<const std::byte*>(from.const_data_ptr());
      auto* into = static_cast<std::byte*>(part.data_ptr());
      for (std::size_t i = 0; i < from.nbytes() && !changes_; i += piece_bytes)
        std::memcpy(into + i, begin + i, std::min(piece_bytes, from.nbytes() - i));
    }
  } catch (const c10::Error& e) {
    on_.note_end(e);
    has_room = false;
  }
  {
    const lock held(mutex_);
    copying_.reset();
    changed_.notify_all();
    if (changes_ || !has_room) {
      --unsent_bases_;
      if (!changes_)
        grow_cold(layer);
      return false;
    }
    x.is_live = false;
  }
  fault("feed_copy", x.note);
  return true;
}

void state_feed::send(const message& x) {
  const auto began = std::chrono::steady_clock::now();
  const auto note = encode(x.note);
  const auto sends = [&](std::optional<std::size_t> part) {
    std::vector<ticket> sent{over_.send(to_, feed_note_tag(notes_++), note)};
    if (part)
      sent.push_back(over_.send(to_,
                                shard_tag(x.note.at, x.note.layer,
                                          x.note.kind == feed_kind::gradient  ? gradient_part
                                          : x.note.kind == feed_kind::buffers ? buffers_part
                                                                              : *part),
                                on_.memory_of(x.payload[*part])));
    for (const auto& each : sent)
      over_.wait(each, sending_limit);
  };
  if (x.payload.empty())
    sends({});
  std::uint64_t bytes = 0;
  std::size_t parts = 0;
  for (; parts < x.payload.size() && begin_part(x, parts); ++parts) {
    sends(parts);
    bytes += x.payload[parts].nbytes();
  }
  {
    const lock held(mutex_);
    begun_base_.reset();
    sent_bytes_ += bytes;
    sending_ms_ += bytes > 0 ? ms_since(began) : 0;
    if (x.note.kind == feed_kind::gradient)
      unsent_.at(x.note.layer) -= gradient_bytes(x.note.layer);
    if (x.note.kind == feed_kind::base)
      --unsent_bases_;
  }
  if (parts < x.payload.size())
    return;
  fault(x.note.kind == feed_kind::base       ? "feed_base"
        : x.note.kind == feed_kind::gradient ? "feed_gradient"
        : x.note.kind == feed_kind::end      ? "feed_end"
                                             : "feed_note",
        x.note);
}

// False: of a layer that grew cold meanwhile, which the next note says.
bool state_feed::begin_part(const message& x, std::size_t part) {
  if (x.note.kind != feed_kind::base)
    return true;
  const lock held(mutex_);
  if (!is_followed(x.note.layer))
    return false;
  if (part + 1 == x.payload.size())
    begun_base_.reset();
  return true;
}

void state_feed::fault(const char* phase, const feed_note& of) const {
  if (options_.on_fault_point)
    options_.on_fault_point({phase, what_.next, of.at.steps, of.layer});
}

state_feeds::state_feeds(communicator& over, const prepare& what, std::uint32_t self, const model_description& model,
                         const tensor_device& on, const executor_options& options,
                         const std::function<void(const std::exception_ptr&)>& fails) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> layers;
  for (const auto& move : what.moves)
    if (move.source == self)
      layers[move.destination].push_back(move.layer);
  for (auto& [to, all] : layers)
    feeds_[to] = std::make_unique<state_feed>(over, what, to, std::move(all), model, on, options, fails);
}

void state_feeds::complete(const version& at, const gradient_of_layer& gradient) {
  for (auto& [to, feed] : feeds_)
    feed->complete(at, gradient);
}

void state_feeds::complete(const version& at, std::uint32_t layer, const gradient_of_layer& gradient) {
  for (auto& [to, feed] : feeds_)
    feed->complete(at, layer, gradient);
}

void state_feeds::decided(const version& at, const commit_result& result, bool skipped,
                          const std::optional<validation_course>& course) {
  for (auto& [to, feed] : feeds_)
    feed->decided({.kind = feed_kind::commit,
                   .at = at,
                   .rate = result.learning_rate,
                   .clip = result.clip_factor,
                   .skipped = skipped,
                   .course = course});
}

void state_feeds::applied(const layer_store& held, const version& at) {
  const double step_ms = applied_at_ ? ms_since(*applied_at_) : 0;
  applied_at_ = std::chrono::steady_clock::now();
  for (auto& [to, feed] : feeds_)
    feed->applied(held, at, step_ms);
}

std::map<std::uint32_t, std::set<std::uint32_t>> state_feeds::end(const version& at) {
  std::map<std::uint32_t, std::set<std::uint32_t>> result;
  for (auto& [to, feed] : feeds_)
    result[to] = feed->end(at);
  return result;
}

void state_feeds::wait_sent() {
  for (auto& [to, feed] : feeds_)
    feed->wait_sent();
}

} // namespace parcae
