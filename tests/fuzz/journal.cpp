// Values of the manager's journal: the first byte says of which kind.

#include "protocols/client/journal.hpp"

#include "protocols/values/loss_record.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <stdexcept>

namespace parcae {
namespace {

template <class T>
void check(std::span<const char> bytes) {
  std::vector<char> once;
  try {
    once = encode(decode_journal<T>(bytes));
  } catch (const std::runtime_error&) {
    return;
  }
  promise(encode(decode_journal<T>(once)) == once, "what is decoded can be encoded");
}

/// Also with a checksum that is right.
void check_losses(std::span<const char> bytes) {
  try {
    auto x = decode_loss_block(bytes);
    loss_record record;
    record.put(x);
    promise(encode(decode_loss_block(encode(x))) == encode(x), "what is decoded can be encoded");
  } catch (const std::runtime_error&) {
  }
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  fuzz_input input(data, size);
  const auto which = input.take<std::uint8_t>();
  const std::span<const char> bytes(input.rest());
  switch (which % 4) {
  case 0:
    check<durable_state>(bytes);
    break;
  case 1:
    check<job_record>(bytes);
    break;
  case 2:
    check<cluster_record>(bytes);
    break;
  case 3:
    check_losses(bytes);
    break;
  }
  return 0;
}
