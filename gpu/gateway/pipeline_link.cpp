#include "gpu/gateway/pipeline_link.hpp"

#include "protocols/base/crash_stack.hpp"

#include <chrono>
#include <span>
#include <utility>

namespace parcae {

namespace {

using namespace std::chrono_literals;

constexpr auto dial_limit = 10s;   ///< then it begins anew
constexpr auto silence_limit = 1h; ///< who is silent is found by the rules, which know how long a pass takes
constexpr auto pause = 100ms;      ///< between two times that dialling was refused for good, as by a token

} // namespace

pipeline_link::pipeline_link(data_port& port, pass_call first, pass_call last, const pass_bounds& bounds,
                             listener tells) :
    port_(port),
    first_(std::move(first)), last_(std::move(last)), bounds_(bounds), tells_(std::move(tells)),
    thread_([this] { run(); }) {}

pipeline_link::~pipeline_link() {
  cut();
  {
    const lock held(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void pipeline_link::connect() {
  const lock held(mutex_);
  wanted_ = true;
  changed_.notify_all();
}

void pipeline_link::cut() {
  std::shared_ptr<connection> over;
  const lock held(mutex_);
  wanted_ = false;
  cancelled_ = true;
  over = std::exchange(now_, nullptr);
  if (over) {
    over->rows->abort();
    over->tokens->abort();
  }
}

void pipeline_link::send(const pass_frame& x) {
  const lock held(mutex_);
  if (!now_)
    return;
  auto& to = now_->departures[now_->went % now_->departures.size()];
  if (to.sent && !now_->rows->done(to.sent)) { // it takes nothing: the socket's buffer is full
    now_->rows->abort();
    now_->tokens->abort();
    return;
  }
  encode(x, to.bytes);
  to.sent = now_->rows->send(pass_peer, pass_tag(now_->went++), to.bytes);
}

void pipeline_link::run() {
  use_crash_stack();
  while (wait_for_wish()) {
    const auto on = dial();
    if (!on)
      continue;
    tells_.on_connected(*this);
    hear(*on);
    tells_.on_end(*this);
  }
}

/// False: it is to end.
bool pipeline_link::wait_for_wish() {
  lock held(mutex_);
  while (!wanted_ && !ended_)
    held.wait(changed_);
  cancelled_ = ended_;
  return !ended_;
}

/// Null: it did not come about, or is not wanted any more.
std::shared_ptr<pipeline_link::connection> pipeline_link::dial() {
  auto result = std::make_shared<connection>();
  try {
    result->rows = port_.connect_passes(first_, dial_limit, cancelled_);
    result->tokens = port_.connect_passes(last_, dial_limit, cancelled_);
  } catch (const communication_error&) {
    lock held(mutex_);
    if (!cancelled_)
      held.wait_until(changed_, std::chrono::steady_clock::now() + pause);
    return nullptr;
  }
  const lock held(mutex_);
  if (!std::exchange(wanted_, false) || cancelled_)
    return nullptr;
  now_ = result;
  return result;
}

void pipeline_link::hear(connection& on) {
  std::array<std::byte, pass_answer_bytes> bytes;
  pass_answer answer;
  try {
    for (std::uint64_t n = 0;; ++n) {
      on.tokens->wait(on.tokens->receive(pass_peer, pass_tag(n), bytes), silence_limit);
      decode(std::span<const std::byte, pass_answer_bytes>(bytes), bounds_, answer);
      tells_.on_answer(*this, answer);
    }
  } catch (const communication_error&) {
    on.rows->abort(); // what was posted into `bytes` is over, too
    on.tokens->abort();
  }
}

} // namespace parcae
