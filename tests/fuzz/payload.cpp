// Payloads of the control plane's frames, of the kind that the first byte says. What is found good CAF must be able to
// read.

#include "protocols/wire/type_ids.hpp"
#include "runtime/link/payload_check.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <caf/all.hpp>

#include <sys/resource.h>

namespace parcae {
namespace {

struct config : caf::actor_system_config {
  config() {
    parcae::add_message_types(*this);
    set("scheduler.policy", caf::atom("testing")); // no threads
  }
};

void read(caf::actor_system& system, const frame_header& header, std::span<const char> payload) {
  payload_terms terms{system.node(), {}};
  if (header.kind == frame_kind::direct_message)
    terms.may_be = [](const permission&) { return true; };
  if (payload.empty() || !check_payload(system, header, payload, terms).problem.empty())
    return;
  if (header.kind == frame_kind::direct_message) {
    caf::scoped_execution_unit context(&system);
    caf::binary_deserializer source(&context, payload.data(), payload.size());
    std::vector<caf::strong_actor_ptr> stages;
    caf::message content;
    const auto error = source(stages, content); // without proxies: no handles of other nodes
    promise(!error || error == caf::sec::no_proxy_registry, "CAF reads what is found good");
  }
}

/// That this process ever had.
long memory_kib() {
  rusage x{};
  getrusage(RUSAGE_SELF, &x);
  return x.ru_maxrss;
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  // Never destroyed: at the end of the process CAF's globals go first.
  static auto& system = *new caf::actor_system(*new config);
  fuzz_input input(data, size);
  constexpr frame_kind kinds[] = {frame_kind::direct_message, frame_kind::server_handshake,
                                  frame_kind::client_handshake, frame_kind::monitor_message, frame_kind::down_message};
  frame_header header;
  header.kind = kinds[input.take<std::uint8_t>() % std::size(kinds)];
  const std::span<const char> payload(input.rest());
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  const auto before = memory_kib();
  read(system, header, payload);
  promise(memory_kib() - before < 64 * 1024, "a payload takes little memory");
  return 0;
}
