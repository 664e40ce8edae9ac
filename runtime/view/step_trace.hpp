#pragma once

// Spans of steps in the Trace Event format, which Perfetto and Chromium's tracing open.

#include "protocols/client/traces.hpp"

#include <string>

namespace parcae {

/// A process for each pipeline, a thread for each of its stages; complete events for steps and for what they are spent
/// on, flows for activations and gradients. Ranks have clocks of their own: they are put side by side by the ends of
/// their commit exchanges, which are at one time but for the way of a message. `x`: all traces there are.
std::string trace_events_of(const trace_reply& x);

} // namespace parcae
