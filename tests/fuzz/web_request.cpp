// What a request to `parcae web` says: its target, then the body of a change.

#include "runtime/web/message.hpp"
#include "runtime/web/requests.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <string>

namespace parcae {
namespace {

bool is_name(const std::string& x) {
  return !x.empty() && x != "." && x != ".." && x.find_first_of(std::string_view("/\0\r\n", 4)) == x.npos;
}

/// Refuses only as it says.
template <class Function>
void try_it(Function f) {
  try {
    f();
  } catch (const web_error& e) {
    promise(e.status == 400 || e.status == 404, "what is wrong is the request");
    promise(*e.what() != '\0' && std::string_view(e.what()).find('\n') == std::string_view::npos, "a reason is a line");
  }
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  fuzz_input input(data, size);
  const auto target = input.take_line(), body = input.rest();
  try_it([&] {
    const auto x = parse_web_target(target);
    for (const auto& name : x.path)
      promise(is_name(name), "a path leads nowhere else");
    for (const auto& name : x.path)
      try_it([&] { promise(parse_number(name, "it") <= 1'000'000'000, "numbers are bounded"); });
  });
  try_it([&] { toml_of(body); });
  try_it([&] {
    const auto x = parse_preemption(body);
    promise(x.names.empty() != (x.any == 0), "it says whom");
    promise(x.notice.count() >= 0 && x.notice <= std::chrono::hours(24), "a notice is bounded");
  });
  return 0;
}
