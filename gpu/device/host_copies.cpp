#include "gpu/device/host_copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace parcae {

namespace {

/// Of one piece, and what the device was given before it. The wait for the whole has a limit of its own.
constexpr std::chrono::minutes longest_wait{10};

} // namespace

host_copies::host_copies(device& on, sizes x) :
    sizes_(x), ring_(on, x.ring), stream_(on.make_stream()), thread_([this] { run(); }) {}

host_copies::~host_copies() {
  queue_.close();
  thread_.join();
}

std::future<void> host_copies::to_host(std::span<std::byte> to, const std::byte* from, std::shared_ptr<event> after) {
  auto x = std::make_shared<request>(request{to, from, std::move(after), {}});
  auto result = x->done.get_future();
  queue_.put(std::move(x));
  return result;
}

void host_copies::run() {
  std::exception_ptr broken; // a device's errors stay
  for (;;) {
    const auto x = under_way_.empty() ? queue_.take() : queue_.take_at_once();
    if (queue_.is_closed())
      break;
    try {
      if (broken)
        std::rethrow_exception(broken);
      if (x)
        serve(*x);
      else
        finish_oldest();
    } catch (const device_error&) {
      broken = std::current_exception();
      if (x)
        (*x)->done.set_exception(broken);
      // A request with pieces under way is told once, with its last piece.
      for (auto& y : std::exchange(under_way_, {}))
        if (y.last_of)
          y.last_of->done.set_exception(broken);
    }
  }
  try { // what the device still writes to is the ring's
    while (!under_way_.empty())
      finish_oldest();
  } catch (const device_error&) {
    under_way_.clear();
  }
}

void host_copies::serve(const std::shared_ptr<request>& x) {
  if (x->after)
    stream_->wait_for(*x->after);
  if (x->to.empty())
    return x->done.set_value();
  for (std::size_t begin = 0; begin < x->to.size(); begin += sizes_.piece) {
    const auto n = std::min(sizes_.piece, x->to.size() - begin);
    std::byte* pinned = nullptr;
    while (!(pinned = ring_.take(n)))
      finish_oldest();
    stream_->copy(pinned, x->from + begin, n);
    const bool last = begin + n == x->to.size();
    under_way_.push_back({stream_->record(), pinned, x->to.subspan(begin, n), last ? x : nullptr});
  }
}

void host_copies::finish_oldest() {
  auto& x = under_way_.front();
  if (!x.copied->wait(longest_wait))
    throw device_error("a copy from the device is stuck");
  std::memcpy(x.to.data(), x.pinned, x.to.size());
  if (x.last_of)
    x.last_of->done.set_value();
  under_way_.pop_front();
  ring_.give_back();
}

} // namespace parcae
