#include "gpu/gateway/pipelines.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace parcae {

BOOST_DESCRIBE_ENUM(pipeline_phase, opening, asking, ready, drained)

std::string to_string(pipeline_phase x) {
  return std::string(enum_name(x));
}

std::string to_string(pipeline_trigger x) {
  constexpr std::array texts{"its connections stand",
                             "it says what it holds",
                             "tokens of its oldest pass came",
                             "it is drained",
                             "a pass threw",
                             "a connection ended, or its answer makes no sense",
                             "nothing was heard of it for too long"};
  static_assert(texts.size() == static_cast<std::size_t>(pipeline_trigger::silent) + 1,
                "a text for each trigger, in their order");
  return texts.at(static_cast<std::size_t>(x));
}

namespace {

/// A block of caches has so many positions, and is one request's.
constexpr std::uint64_t block = 16;

std::uint64_t in_blocks(std::uint64_t positions) {
  return (positions + block - 1) / block * block;
}

/// The last token is no row: it needs no place in a cache.
std::uint64_t places_of(std::uint32_t most) {
  return in_blocks(most - 1);
}

} // namespace

struct pipelines::conditions {
  static bool more_asked(const pipelines&, const trigger& x) { return x.of.asked.size() > 1; }
  static bool no_answer_to_it(const pipelines&, const trigger& x) {
    return x.of.asked.empty() || x.answer->number + x.of.asked.size() != x.of.number + 1;
  }
  /// Numbers rise without a gap, and each token that follows from the pass is there.
  static bool not_of_the_oldest(const pipelines&, const trigger& x) {
    if (x.of.under_way.empty() || x.of.under_way.front().number != x.answer->number)
      return true;
    std::size_t tokens = 0;
    for (const auto& rows : x.of.under_way.front().rows)
      if (rows.yields) {
        const auto at = tokens++;
        if (at >= x.answer->tokens.size() || x.answer->tokens[at].request != rows.request ||
            x.answer->tokens[at].position != rows.first + rows.count)
          return true;
      }
    return tokens != x.answer->tokens.size();
  }
};

struct pipelines::actions {
  static void ask(pipelines& p, const trigger& x) {
    auto& of = x.of;
    of.epoch = x.epoch;
    of.number = 0;
    of.heard_ms = x.now_ms;
    const auto all = p.book_.begun();
    std::size_t from = 0;
    do { // none: what there is room for
      const auto count = std::min(all.size() - from, pass_frame::max_asked);
      auto& asked = of.asked.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(from),
                                          all.begin() + static_cast<std::ptrdiff_t>(from + count));
      p.frame_ = {.kind = pass_frame_kind::held, .room = ~std::uint64_t{0} >> 1};
      for (const auto id : asked)
        p.frame_.rows.push_back({id, static_cast<std::uint32_t>(p.book_.find(id)->tokens.size()), 0});
      p.send(x.number);
      from += count;
    } while (from < all.size());
  }

  static void note_held(pipelines&, const trigger& x) {
    auto& of = x.of;
    of.room = x.answer->room;
    const auto& asked = of.asked.front();
    for (const auto& [request, position, token] : x.answer->tokens)
      if (std::ranges::find(asked, request) != asked.end())
        of.held[request] = position;
    of.asked.pop_front();
  }
  static void begin(pipelines& p, const trigger& x) {
    note_held(p, x);
    x.of.schedule.emplace(pass_limits{.depth = p.shape_.depth,
                                      .requests = p.shape_.batch,
                                      .chunk = p.shape_.chunk,
                                      .rows = p.shape_.sizes.back(),
                                      .positions = UINT64_MAX,
                                      .sizes = p.shape_.sizes});
  }

  static void tokens(pipelines& p, const trigger& x) {
    auto& of = x.of;
    const auto took = static_cast<double>(x.now_ms - of.under_way.front().sent_ms);
    p.times_.took(of.under_way.front().size, took);
    of.usual_ms = of.usual_ms == 0 ? std::max(took, 1.0) : of.usual_ms * 0.9 + took * 0.1;
    for (const auto& rows : of.under_way.front().rows)
      p.book_.went_well(rows.request, rows.first + rows.count - 1);
    const auto came = [&](std::uint64_t id) { return std::ranges::find(x.answer->tokens, id, &request_row::request); };
    const auto yielded = of.schedule->done(); // a copy: what is told may have requests leave
    of.under_way.pop_front();
    for (const auto& y : yielded) {
      const auto token = came(y.id);
      const bool none = token->token == pass_answer::no_token;
      if (none)
        p.book_.no_token(y.id);
      else
        ++p.counts_.tokens;
      if (none || !p.book_.token(y.id, token->position, token->token)) {
        of.schedule->leave(y.id);
        of.over.push_back(y.id);
      }
    }
  }

  static void end(pipelines& p, const trigger& x) {
    p.give_back(x.of);
    p.does_.cut(x.number);
  }
  static void open(pipelines& p, const trigger& x) {
    end(p, x);
    ++p.counts_.broken;
    x.of.heard_ms = x.now_ms;
    p.does_.connect(x.number);
  }
  /// Those whose rows are in it: one of them may be at fault, or none.
  static void suspect(pipelines& p, const trigger& x) {
    for (const auto& pass : x.of.under_way)
      if (pass.number == x.answer->number) {
        const bool alone =
            std::ranges::all_of(pass.rows, [&](const auto& y) { return y.request == pass.rows.front().request; });
        for (const auto& rows : pass.rows)
          p.book_.threw(rows.request, rows.first + rows.count - 1, alone);
      }
    open(p, x);
  }
};

// clang-format off
const std::vector<pipelines::row> pipelines::rows = [] {
  using enum pipeline_phase;
  using t = pipeline_trigger;
  using c = conditions;
  using a = actions;
  return std::vector<row>{
    {opening, t::connected, "", nullptr, "asks what it holds of requests that have begun", a::ask, asking},
    {asking, t::held, "that was not asked", c::no_answer_to_it, "connects anew", a::open, opening},
    {asking, t::held, "more was asked", c::more_asked, "notes it", a::note_held, {}},
    {asking, t::held, "", nullptr, "notes it; takes requests", a::begin, ready},
    {{asking, ready}, t::tokens, "they do not follow from it", c::not_of_the_oldest, "its requests go back; connects anew", a::open, opening},
    {ready, t::tokens, "", nullptr, "tells them; the next passes", a::tokens, {}},
    // What it was sent after that was not computed.
    {{asking, ready}, t::drained, "", nullptr, "its requests go back; its connections end", a::end, drained},
    {{asking, ready}, t::threw, "", nullptr, "suspects those in the pass; its requests go back; connects anew", a::suspect, opening},
    {{asking, ready}, t::broken, "", nullptr, "its requests go back; connects anew", a::open, opening},
    {{asking, ready}, t::silent, "", nullptr, "its requests go back; connects anew", a::open, opening},
  };
}();
// clang-format on

std::vector<pipeline_rule> pipelines::table() {
  return rules_of(rows);
}

void pipelines::happens(const trigger& x) {
  const auto* row = run_row(*this, *rules_, x.of.phase, x.on, x, observe);
  if (!row)
    return;
  if (row->to)
    x.of.phase = *row->to;
  fill(x.now_ms);
}

void pipelines::route(std::uint32_t count, service_shape shape, std::uint64_t now_ms) {
  for (std::uint32_t i = 0; i < all_.size(); ++i) {
    give_back(all_[i]);
    if (all_[i].phase != pipeline_phase::drained)
      does_.cut(i);
  }
  all_.clear();
  if (count > 0 && (shape.depth != shape_.depth || shape.sizes != shape_.sizes))
    times_ = {};
  if (count > 0)
    shape_ = std::move(shape);
  routed_ms_ = now_ms;
  all_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i)
    does_.connect(i);
}

void pipelines::connected(std::uint32_t pipeline, std::uint64_t epoch, std::uint64_t now_ms) {
  if (pipeline < all_.size())
    happens({.on = pipeline_trigger::connected,
             .number = pipeline,
             .of = all_[pipeline],
             .now_ms = now_ms,
             .epoch = epoch});
}

void pipelines::answered(std::uint32_t pipeline, const pass_answer& x, std::uint64_t now_ms) {
  if (pipeline >= all_.size())
    return;
  auto& of = all_[pipeline];
  of.heard_ms = now_ms;
  const auto says = [&](pipeline_trigger on) {
    happens({.on = on, .number = pipeline, .of = of, .now_ms = now_ms, .answer = &x});
  };
  if (x.kind == pass_frame_kind::drained)
    return says(pipeline_trigger::drained);
  if (x.epoch != of.epoch) // of connections before
    return;
  if (x.kind == pass_frame_kind::rows)
    says(pipeline_trigger::tokens);
  else if (x.kind == pass_frame_kind::held)
    says(pipeline_trigger::held);
  else if (x.kind == pass_frame_kind::failed)
    says(pipeline_trigger::threw);
}

void pipelines::broke(std::uint32_t pipeline, std::uint64_t now_ms) {
  if (pipeline < all_.size())
    happens({.on = pipeline_trigger::broken, .number = pipeline, .of = all_[pipeline], .now_ms = now_ms});
}

void pipelines::look(std::uint64_t now_ms) {
  fill(now_ms);
}

void pipelines::gone(std::uint64_t request, std::uint64_t now_ms) {
  book_.gone(request);
  for (auto& x : all_)
    if (x.schedule && std::ranges::find(x.schedule->requests(), request, &pass_schedule::request::id) !=
                          x.schedule->requests().end()) {
      x.schedule->leave(request);
      x.over.push_back(request);
    }
  fill(now_ms);
}

void pipelines::tick(std::uint64_t now_ms) {
  book_.tick(now_ms);
  if (std::exchange(ticked_ms_, now_ms) + least_silence_ms / 2 < now_ms) // it stood still: what came waits to be heard
    for (auto& x : all_)
      x.heard_ms = std::max(x.heard_ms, now_ms);
  for (auto& x : all_) // it went on elsewhere
    if (x.phase == pipeline_phase::ready)
      forget_held(x, [&](auto id) { return book_.find(id) == nullptr; });
  for (std::uint32_t i = 0; i < all_.size(); ++i) {
    auto& x = all_[i];
    const auto limit =
        x.usual_ms == 0 ? first_silence_ms : std::max(least_silence_ms, static_cast<std::uint64_t>(20 * x.usual_ms));
    if (x.heard_ms + limit <= now_ms)
      happens({.on = pipeline_trigger::silent, .number = i, .of = x, .now_ms = now_ms});
  }
  fill(now_ms);
}

std::uint32_t pipelines::requests_in(std::uint32_t pipeline) const {
  const auto& x = all_.at(pipeline).schedule;
  return x ? static_cast<std::uint32_t>(x->requests().size()) : 0;
}

std::uint64_t pipelines::cached_in(std::uint32_t pipeline) const {
  std::uint64_t result = 0;
  if (const auto& x = all_.at(pipeline).schedule)
    for (const auto& y : x->requests())
      result += y.sent;
  return result;
}

bool pipelines::any_ready() const {
  return std::ranges::any_of(all_, [](const auto& x) { return x.phase == pipeline_phase::ready; });
}

void pipelines::give_back(pipeline& of) {
  if (of.schedule)
    for (const auto& x : of.schedule->requests())
      book_.lost(x.id);
  of.schedule.reset();
  of.asked.clear();
  of.held.clear();
  of.over.clear();
  of.under_way.clear();
  of.usual_ms = 0;
}

// --- which rows go next

std::uint64_t pipelines::places_in(const pipeline& x) {
  std::uint64_t result = 0;
  for (const auto& y : x.schedule->requests())
    result += places_of(y.most);
  return result;
}

/// The one that holds most of it, of those the one with the least to do. None: it waits.
std::optional<std::size_t> pipelines::place_for(const request_book::request& x, std::uint64_t now_ms) const {
  const bool may_be_held = std::ranges::any_of(all_, [&](const auto& y) {
    const bool comes = y.phase == pipeline_phase::opening || y.phase == pipeline_phase::asking;
    return y.phase == pipeline_phase::drained || (comes && now_ms < routed_ms_ + gathering_ms);
  });
  if (x.has_begun() && may_be_held)
    return std::nullopt;
  using merit = std::tuple<std::uint32_t, std::size_t, std::uint64_t>;
  std::optional<std::pair<merit, std::size_t>> best;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const auto& y = all_[i];
    if (y.phase != pipeline_phase::ready || !y.schedule->has_room(x.most) || places_in(y) + places_of(x.most) > y.room)
      continue;
    const auto held = y.held.find(x.id);
    const merit its{UINT32_MAX - (held == y.held.end() ? 0 : held->second), y.schedule->requests().size(),
                    y.schedule->rows_left()};
    if (!best || its < best->first)
      best.emplace(its, i);
  }
  return best ? std::optional(best->second) : std::nullopt;
}

void pipelines::enter(pipeline& in, const request_book::request& x) {
  const auto held = in.held.find(x.id);
  const auto known = static_cast<std::uint32_t>(x.tokens.size());
  const auto sent = std::min(held == in.held.end() ? 0 : held->second, known - 1);
  counts_.repeated += x.computed - std::min(x.computed, sent);
  in.schedule->enter({x.id, known, sent, x.most, x.computed});
  std::erase(in.over, x.id);
  if (held != in.held.end())
    in.held.erase(held);
  // Its stages drop what no request in it has if they need room: from then on nothing of that counts.
  std::uint64_t kept = 0;
  for (const auto& [id, positions] : in.held)
    kept += in_blocks(positions);
  if (places_in(in) + kept > in.room)
    forget_held(in, [](auto) { return true; });
  book_.taken(x.id);
}

template <class F>
void pipelines::forget_held(pipeline& in, F which) {
  std::erase_if(in.held, [&](const auto& x) {
    const bool goes = which(x.first);
    if (goes)
      in.over.push_back(x.first);
    return goes;
  });
}

void pipelines::close() {
  for (auto& x : all_)
    while (x.schedule && !x.schedule->requests().empty()) {
      const auto id = x.schedule->requests().back().id;
      x.schedule->leave(id);
      x.over.push_back(id);
    }
  times_ = {};
  book_.close_all();
}

void pipelines::fill(std::uint64_t now_ms) {
  while (!book_.queue().empty()) { // in their order: none passes another that has to wait
    const auto& x = *book_.find(*book_.queue().begin());
    const auto place = place_for(x, now_ms);
    if (!place)
      break;
    enter(all_[*place], x);
  }
  for (std::uint32_t i = 0; i < all_.size(); ++i)
    if (all_[i].phase == pipeline_phase::ready && !all_[i].schedule->is_full())
      send_passes(i, now_ms);
}

void pipelines::send_passes(std::uint32_t number, std::uint64_t now_ms) {
  auto& of = all_[number];
  const auto suspect = std::ranges::find_if(of.schedule->requests(), [&](const auto& x) {
    const auto* y = book_.find(x.id);
    return y && y->is_suspect();
  });
  of.schedule->only(suspect == of.schedule->requests().end() ? std::nullopt : std::optional(suspect->id));
  while (!of.schedule->is_full()) {
    of.schedule->replay_within(size_beside(shape_.sizes, times_, of.schedule->decoding(), shape_.chunk));
    const auto* const rows = of.schedule->next();
    if (!rows)
      break;
    send_pass(number, *rows, now_ms);
  }
  while (!of.over.empty() && of.under_way.empty()) { // else the next pass says it
    frame_ = {.kind = pass_frame_kind::idle};
    send(number);
  }
}

void pipelines::send_pass(std::uint32_t number, const std::vector<pass_rows>& rows, std::uint64_t now_ms) {
  auto& of = all_[number];
  frame_.kind = pass_frame_kind::rows;
  frame_.room = 0;
  frame_.rows.clear();
  frame_.draws.clear();
  for (const auto& x : rows) {
    const auto& from = *book_.find(x.request);
    for (auto i = x.first; i < x.first + x.count; ++i)
      frame_.rows.push_back({x.request, i, from.tokens[i]});
    if (x.yields)
      frame_.draws.push_back({static_cast<std::uint32_t>(frame_.rows.size() - 1), from.how});
  }
  frame_.size = *std::ranges::lower_bound(shape_.sizes, static_cast<std::uint32_t>(frame_.rows.size()));
  counts_.rows += frame_.rows.size();
  ++counts_.passes;
  of.under_way.push_back({of.number + 1, now_ms, frame_.size, rows});
  send(number);
}

void pipelines::send(std::uint32_t number) {
  auto& of = all_[number];
  frame_.epoch = of.epoch;
  frame_.number = ++of.number;
  const auto told = std::min(of.over.size(), pass_frame::max_over);
  frame_.over.assign(of.over.end() - static_cast<std::ptrdiff_t>(told), of.over.end());
  of.over.resize(of.over.size() - told);
  does_.send(number, frame_);
}

} // namespace parcae
