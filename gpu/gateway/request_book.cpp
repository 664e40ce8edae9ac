#include "gpu/gateway/request_book.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace parcae {

BOOST_DESCRIBE_ENUM(request_phase, queued, running, over)

std::string to_string(request_phase x) {
  return std::string(enum_name(x));
}

std::string to_string(request_trigger x) {
  constexpr std::array texts{"a pipeline takes it",
                             "its next token came",
                             "no token follows, as its logits are not finite",
                             "its pipeline is over, or is connected anew",
                             "a pass with rows of it threw",
                             "no pipeline has taken it for too long",
                             "its client has gone",
                             "the job is over, or the gateway"};
  static_assert(texts.size() == static_cast<std::size_t>(request_trigger::closed) + 1,
                "a text for each trigger, in their order");
  return texts.at(static_cast<std::size_t>(x));
}

struct request_book::conditions {
  static bool stops(const request_book& b, const trigger& x) {
    return std::ranges::binary_search(b.limits_.stop_tokens, x.token);
  }
  static bool the_last(const request_book&, const trigger& x) { return x.of.tokens.size() + 1 >= x.of.most; }
  static bool twice(const request_book&, const trigger& x) { return x.alone && x.of.is_suspect(); }
  static bool never_taken(const request_book&, const trigger& x) { return !x.of.was_taken; }
};

struct request_book::actions {
  static void take(request_book&, const trigger& x) { x.of.was_taken = true; }
  static void tell(request_book& b, const trigger& x) {
    x.of.tokens.push_back(x.token);
    b.tells_.on_token(x.of.id, x.position, x.token);
  }
  static void tell_last(request_book& b, const trigger& x) {
    tell(b, x);
    b.tells_.on_end(x.of.id, request_end::length);
  }
  template <request_end Why>
  static void end(request_book& b, const trigger& x) {
    b.tells_.on_end(x.of.id, Why);
  }
  static void suspect(request_book&, const trigger& x) { x.of.suspect_to = std::max(x.of.suspect_to, x.position + 1); }
};

// clang-format off
const std::vector<request_book::row> request_book::rows = [] {
  using enum request_phase;
  using enum request_trigger;
  using c = conditions;
  using a = actions;
  return std::vector<row>{
    {queued, request_trigger::taken, "", nullptr, "", a::take, running},
    {running, request_trigger::token, "it ends answers", c::stops, "the end", a::end<request_end::stop>, over},
    {running, request_trigger::token, "there may be no more", c::the_last, "it is told; the end", a::tell_last, over},
    // This is the commit: what was told is not taken back.
    {running, request_trigger::token, "", nullptr, "it is told", a::tell, {}},
    {running, request_trigger::no_token, "", nullptr, "the end: 500", a::end<request_end::not_finite>, over},
    // Its tokens stay: what no pipeline holds of it any more is computed again.
    {running, request_trigger::lost, "", nullptr, "back to its place in the queue", nullptr, queued},
    // No pass had rows of others that could be at fault.
    {running, request_trigger::threw, "it was alone in it, and one threw before", c::twice, "the end: 500", a::end<request_end::threw>, over},
    {running, request_trigger::threw, "", nullptr, "back; it goes alone until it is past that row", a::suspect, queued},
    {queued, request_trigger::unserved, "none ever did", c::never_taken, "the end: 503", a::end<request_end::unserved>, over},
    {{queued, running}, request_trigger::gone, "", nullptr, "", nullptr, over},
    {{queued, running}, closed, "", nullptr, "the end: 503", a::end<request_end::closed>, over},
  };
}();
// clang-format on

request_book::request_book(book_limits limits, listener tells, std::uint64_t first) :
    limits_(std::move(limits)), tells_(std::move(tells)), newest_(first) {}

std::vector<request_rule> request_book::table() {
  return rules_of(rows);
}

void request_book::happens(const trigger& x) {
  const auto* row = run_row(*this, *rules_, x.of.phase, x.on, x, observe);
  if (!row || !row->to)
    return;
  x.of.phase = *row->to;
  if (x.of.phase == request_phase::queued)
    queue_.insert(x.of.id);
  else
    queue_.erase(x.of.id);
  if (x.of.phase == request_phase::over)
    all_.erase(x.of.id);
}

std::optional<std::uint64_t> request_book::add(request_wish x, std::uint64_t now_ms) {
  if (is_full())
    return std::nullopt;
  auto& to = all_[++newest_];
  to.id = newest_;
  to.prompt = static_cast<std::uint32_t>(x.prompt.size());
  to.most = to.prompt + x.max_tokens;
  to.tokens = std::move(x.prompt);
  to.tokens.reserve(to.most);
  to.how = x.how;
  to.came_ms = now_ms;
  queue_.insert(to.id);
  return to.id;
}

request_book::request* request_book::known(std::uint64_t id) {
  const auto x = all_.find(id);
  return x == all_.end() ? nullptr : &x->second;
}

const request_book::request* request_book::find(std::uint64_t id) const {
  const auto x = all_.find(id);
  return x == all_.end() ? nullptr : &x->second;
}

void request_book::taken(std::uint64_t id) {
  if (auto* x = known(id))
    happens({request_trigger::taken, *x});
}

bool request_book::token(std::uint64_t id, std::uint32_t position, std::uint32_t token) {
  auto* x = known(id);
  if (!x || position != x->tokens.size())
    return x != nullptr;
  happens({request_trigger::token, *x, position, token});
  return known(id) != nullptr;
}

void request_book::no_token(std::uint64_t id) {
  if (auto* x = known(id))
    happens({request_trigger::no_token, *x});
}

void request_book::lost(std::uint64_t id) {
  if (auto* x = known(id))
    happens({request_trigger::lost, *x});
}

void request_book::threw(std::uint64_t id, std::uint32_t last, bool alone) {
  if (auto* x = known(id))
    happens({.on = request_trigger::threw, .of = *x, .position = last, .alone = alone});
}

void request_book::went_well(std::uint64_t id, std::uint32_t last) {
  if (auto* x = known(id)) {
    x->computed = std::max(x->computed, last + 1);
    x->suspect_to = last + 1 >= x->suspect_to ? 0 : x->suspect_to;
  }
}

void request_book::gone(std::uint64_t id) {
  if (auto* x = known(id))
    happens({request_trigger::gone, *x});
}

void request_book::close_all() {
  while (!all_.empty())
    happens({request_trigger::closed, all_.begin()->second});
}

void request_book::tick(std::uint64_t now_ms) {
  std::vector<std::uint64_t> late;
  for (const auto id : queue_)
    if (all_.at(id).came_ms + limits_.wait_ms <= now_ms)
      late.push_back(id);
  for (const auto id : late)
    happens({request_trigger::unserved, all_.at(id)});
}

std::vector<std::uint64_t> request_book::begun() const {
  std::vector<std::uint64_t> result;
  for (const auto& [id, x] : all_)
    if (x.has_begun())
      result.push_back(id);
  return result;
}

} // namespace parcae
