#include "protocols/base/as_result.hpp"
#include "runtime/link/connection.hpp"
#include "runtime/link/host_silence.hpp"
#include "runtime/link/hub.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

// How long connections may take for what they do, and which of them lead to nobody any more.

namespace parcae {

using namespace std::chrono_literals;
using boost::asio::awaitable;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds beat = 100ms;

} // namespace

/// When so much time will have passed at least, on the clock of due times, which is behind by a beat at most.
milliseconds hub::by(milliseconds limit) const {
  return awake_ + limit + beat;
}

void hub::end_those_out_of_time() {
  std::vector<connection_ptr> late, ended;
  for (const auto* all : {&strangers_.all(), &std::as_const(members_)})
    for (const auto& x : *all)
      if (std::min(x->due, x->write_due) <= awake_)
        late.push_back(x);
      else if (x->peer && has_ended(*x->peer))
        ended.push_back(x);
  for (const auto& x : late) {
    x->expired = true;
    if (!x->step.empty())
      refuse(*x, "it did not " + x->step + " in time");
    else if (x->write_due <= awake_)
      spdlog::warn("closed the connection to {}: it takes nothing more", x->name());
    end(*x);
  }
  for (const auto& x : ended)
    refuse(*x, "its certificate has ended");
}

void hub::end_those_vanished() {
  std::vector<std::pair<connection_ptr, host_silence>> all;
  for (const auto& x : members_)
    if (x->elsewhere && !x->over)
      if (const auto silence = silence_of(x->socket.native_handle()))
        all.emplace_back(x, *silence);
  const bool heard = std::ranges::any_of(all, [](const auto& x) { return x.second.silent <= heard_lately; });
  for (const auto& [x, silence] : all)
    if (has_vanished(silence, heard))
      refuse(*x, "its host does not answer any more");
}

awaitable<void> hub::watch() {
  for (;;) {
    const auto before = std::chrono::steady_clock::now();
    pulse_.expires_after(beat);
    co_await pulse_.async_wait(as_result);
    const auto passed = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - before);
    awake_ += std::min(passed, 2 * beat);
    end_those_out_of_time();
    if (passed < 2 * beat) // else this process or its machine stood still, and answers may just be coming
      end_those_vanished();
    nodes_.expire(awake_);
    if (ending_ && members_.empty()) {
      io_.stop();
      co_return;
    }
  }
}

} // namespace parcae
