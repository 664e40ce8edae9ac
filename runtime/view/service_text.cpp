#include "runtime/view/service_text.hpp"

#include "protocols/base/text.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace parcae {

std::string service_figures(const job_status& x) {
  if (x.width == 0)
    return {};
  return fmt::format(", {}×{}, {} tokens/s, {} running, {} queued", x.width, x.depth,
                     text_of_quantity(x.requests.tokens_per_s), counted(x.requests.running, "request"),
                     x.requests.queued);
}

std::vector<std::string> service_lines(const job_status& x) {
  const auto& r = x.requests;
  std::vector<std::string> result;
  if (x.gateway.empty())
    return result;
  auto where = "answers at " + (x.http.empty() ? "an address that it does not tell" : x.http) + " (" + x.gateway + ")";
  if (x.gateways > 1)
    where += ", " + counted(x.gateways - 1, "other gateway") + " standing by";
  result.push_back(std::move(where));
  auto fared = fmt::format("{} answered, {} refused, {} failed; {}", counted(r.answered, "request"), r.refused,
                           r.failed, counted(r.tokens, "token"));
  if (r.recomputed > 0 || r.broken > 0)
    fared +=
        fmt::format("; {} broke, {} computed again", counted(r.broken, "pipeline"), counted(r.recomputed, "position"));
  if (x.cache_blocks > 0)
    fared += fmt::format("; caches {} % full",
                         100 * (x.cache_blocks - std::min(x.free_blocks, x.cache_blocks)) / x.cache_blocks);
  result.push_back(std::move(fared));
  if (r.first_token.p99_ms > 0)
    result.push_back(fmt::format("first token after {} (p99 {}), then each {} (p99 {}); {} requests/s",
                                 text_of_ms(r.first_token.p50_ms), text_of_ms(r.first_token.p99_ms),
                                 text_of_ms(r.between_tokens.p50_ms), text_of_ms(r.between_tokens.p99_ms),
                                 text_of_quantity(r.arrivals_per_s)));
  return result;
}

} // namespace parcae
