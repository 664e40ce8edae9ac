#include "protocols/values/loss_record.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace parcae {

namespace {

static_assert(std::endian::native == std::endian::little, "bytes are written as they are in memory");

constexpr std::array<char, 8> magic{'P', 'A', 'R', 'C', 'L', 'O', 'S', '1'};
constexpr std::size_t header_bytes = 48, record_bytes = 36;
constexpr std::uint32_t unknown_time = UINT32_MAX;
/// Stands for "not evaluated": a NaN that no computation makes.
constexpr std::uint64_t not_evaluated = 0x7ff4'5041'5243'4145;
constexpr std::size_t name_length = 16;
/// Times before, from a machine that does not know the time, are none (September 2001).
constexpr std::int64_t least_ms = 1'000'000'000'000;

struct header {
  std::array<char, 8> magic;
  std::uint64_t first;
  std::uint32_t count;
  std::uint32_t samples;
  std::int64_t base_ms; ///< times are from it on
  std::uint64_t reserved;
  std::uint64_t checksum; ///< of all else
};
static_assert(sizeof(header) == header_bytes);

template <class T>
void put_at(char*& to, const T& x) {
  std::memcpy(to, &x, sizeof x);
  to += sizeof x;
}

template <class T>
T taken(const char*& from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  from += sizeof x;
  return x;
}

std::uint64_t checksum_of(header x, std::span<const char> records) {
  x.checksum = 0;
  return XXH3_64bits_withSeed(records.data(), records.size(), XXH3_64bits(&x, sizeof x));
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

bool same_bits(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && same_bits(a.value_or(0), b.value_or(0));
}

std::int64_t base_of(const loss_block& x) {
  std::int64_t result = 0;
  for (const auto& y : x.all)
    if (y.at_ms >= least_ms && (result == 0 || y.at_ms < result))
      result = y.at_ms;
  return result;
}

} // namespace

bool step_record::same_result(const step_record& x) const {
  return same_bits(loss, x.loss) && same_bits(gradient_norm, x.gradient_norm) &&
         same_bits(learning_rate, x.learning_rate);
}

bool step_record::same(const step_record& x) const {
  return same_result(x) && same_bits(validation_loss, x.validation_loss) && at_ms == x.at_ms;
}

std::vector<char> encode(const loss_block& x) {
  std::vector<char> result(header_bytes + x.all.size() * record_bytes);
  header head{magic, x.first, static_cast<std::uint32_t>(x.all.size()), x.samples, base_of(x), 0, 0};
  auto* to = result.data() + header_bytes;
  for (const auto& y : x.all) {
    const auto since = std::clamp<std::int64_t>(y.at_ms - head.base_ms, 0, unknown_time - 1);
    put_at(to, y.loss);
    put_at(to, y.gradient_norm);
    put_at(to, y.learning_rate);
    put_at(to, y.validation_loss ? std::bit_cast<std::uint64_t>(*y.validation_loss) : not_evaluated);
    put_at(to, y.is_known() ? static_cast<std::uint32_t>(since) : unknown_time);
  }
  head.checksum = checksum_of(head, std::span(result).subspan(header_bytes));
  std::memcpy(result.data(), &head, sizeof head);
  return result;
}

loss_block decode_loss_block(std::span<const char> bytes) {
  const auto refuse = [](const char* why) { throw std::runtime_error(std::string("a block of losses ") + why); };
  if (bytes.size() < header_bytes || bytes.size() > loss_block_limit_bytes)
    refuse("has an impossible size");
  header head{};
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != magic)
    refuse("is none, or of another build");
  if (head.count != (bytes.size() - header_bytes) / record_bytes || (bytes.size() - header_bytes) % record_bytes != 0)
    refuse("is cut short");
  if (head.checksum != checksum_of(head, bytes.subspan(header_bytes)))
    refuse("is damaged: its checksum is wrong");
  if (head.first > UINT64_MAX - loss_block_steps || head.base_ms < 0 || head.base_ms > INT64_MAX - unknown_time)
    refuse("has a step or a time that cannot be");
  loss_block result{head.first, head.samples, {}};
  result.all.reserve(head.count);
  const auto* from = bytes.data() + header_bytes;
  for (std::uint32_t i = 0; i < head.count; ++i) {
    step_record y;
    y.loss = taken<double>(from);
    y.gradient_norm = taken<double>(from);
    y.learning_rate = taken<double>(from);
    if (const auto bits = taken<std::uint64_t>(from); bits != not_evaluated)
      y.validation_loss = std::bit_cast<double>(bits);
    if (const auto since = taken<std::uint32_t>(from); since != unknown_time)
      y.at_ms = std::max<std::int64_t>(head.base_ms + since, 1);
    result.all.push_back(y.is_known() ? y : step_record{});
  }
  return result;
}

std::string name_of_loss_block(std::uint64_t first) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%016llu", static_cast<unsigned long long>(first));
  return text.data();
}

std::optional<std::uint64_t> loss_block_in(std::string_view name) {
  std::uint64_t result = 0;
  const auto* end = name.data() + name.size();
  const auto [rest, problem] = std::from_chars(name.data(), end, result);
  const bool good = name.size() >= name_length && problem == std::errc() && rest == end;
  return good && name_of_loss_block(result) == name ? std::optional(result) : std::nullopt;
}

// --- the record

void loss_record::block::set(std::size_t at, const step_record& x) {
  if (all.size() <= at)
    all.resize(at + 1);
  all[at] = x;
  const auto i = std::ranges::lower_bound(evaluated, at);
  const bool was = i != evaluated.end() && *i == at;
  if (was && !x.validation_loss)
    evaluated.erase(i);
  else if (!was && x.validation_loss)
    evaluated.insert(i, static_cast<std::uint16_t>(at));
}

loss_record::block& loss_record::changed(std::uint64_t number) {
  auto& x = blocks_[number];
  if (own_.insert(number).second)
    x = x ? std::make_shared<block>(*x) : std::make_shared<block>();
  return *x;
}

const step_record* loss_record::find(std::uint64_t step) const {
  return step < end_ ? remembered(step) : nullptr;
}

const step_record* loss_record::remembered(std::uint64_t step) const {
  const auto known = blocks_.find(step / loss_block_steps);
  if (known == blocks_.end() || known->second->all.size() <= step % loss_block_steps)
    return nullptr;
  const auto& x = known->second->all[step % loss_block_steps];
  return x.is_known() ? &x : nullptr;
}

std::uint64_t loss_record::first_known(std::uint64_t from) const {
  for (auto i = blocks_.lower_bound(from / loss_block_steps); i != blocks_.end(); ++i) {
    const auto& all = i->second->all;
    for (auto at = std::max(from, i->first * loss_block_steps) % loss_block_steps; at < all.size(); ++at)
      if (all[at].is_known())
        return std::min(end_, i->first * loss_block_steps + at);
  }
  return end_;
}

std::uint64_t loss_record::news_from(std::uint64_t from) const {
  const auto* last = from > 0 ? find(from - 1) : nullptr;
  return last && last->validation_loss ? from - 1 : first_known(from);
}

void loss_record::reach(std::uint64_t steps, std::uint64_t known_from) {
  if (steps <= end_)
    return;
  for (auto i = blocks_.lower_bound(end_ / loss_block_steps); i != blocks_.end(); ++i) {
    const auto first = i->first * loss_block_steps;
    for (auto step = std::max(end_, first); step < std::min(known_from, first + loss_block_steps); ++step)
      if (remembered(step))
        changed(i->first).set(step % loss_block_steps, {});
  }
  end_ = steps;
}

bool loss_record::put(std::uint64_t step, const step_record& x) {
  reach(step + 1, step);
  const auto* known = remembered(step);
  const bool differs = known && !known->same_result(x);
  if (known && !differs && (!x.validation_loss || known->validation_loss))
    return true; // the time at which it was computed first counts
  auto now = x;
  if (known && !differs) {
    now = *known;
    now.validation_loss = x.validation_loss;
  }
  changed(step / loss_block_steps).set(step % loss_block_steps, now);
  return !differs;
}

std::optional<std::uint64_t> loss_record::put(const loss_block& x, std::uint64_t limit) {
  std::optional<std::uint64_t> differs;
  for (std::size_t i = 0; i < x.all.size() && x.first + i < limit; ++i) {
    const auto step = x.first + i;
    if (x.all[i].is_known() && !put(step, x.all[i]))
      differs = std::min(differs.value_or(step), step);
  }
  return differs;
}

void loss_record::replace(const loss_block& x) {
  for (std::size_t i = 0; i < x.all.size(); ++i)
    if (const auto step = x.first + i; x.all[i].is_known()) {
      put(step, x.all[i]);
      auto now = x.all[i];
      if (!now.validation_loss) // put kept it if it is of the same result
        now.validation_loss = find(step)->validation_loss;
      if (!find(step)->same(now))
        changed(step / loss_block_steps).set(step % loss_block_steps, now);
    }
}

void loss_record::evaluate(std::uint64_t step, double validation_loss) {
  const auto* known = find(step);
  if (!known || (known->validation_loss && same_bits(*known->validation_loss, validation_loss)))
    return;
  auto now = *known;
  now.validation_loss = validation_loss;
  changed(step / loss_block_steps).set(step % loss_block_steps, now);
}

void loss_record::skip_to(std::uint64_t steps) {
  reach(steps, steps);
}

void loss_record::drop_before(std::uint64_t step) {
  const auto number = step / loss_block_steps;
  blocks_.erase(blocks_.begin(), blocks_.lower_bound(number));
  own_.erase(own_.begin(), own_.lower_bound(number));
}

loss_block loss_record::part(std::uint64_t first, std::uint64_t until) const {
  loss_block result{first, 0, {}};
  const auto last = std::min({first + std::min(loss_block_steps, UINT64_MAX - first), until, end_});
  for (auto step = first; step < last; ++step) {
    const auto* known = find(step);
    result.all.push_back(known ? *known : step_record{});
  }
  return result;
}

std::pair<std::uint64_t, loss_block> loss_record::thinned(std::uint64_t first, std::uint64_t points) const {
  const auto count = end_ - std::min(first, end_);
  points = std::clamp<std::uint64_t>(points, 1, loss_block_steps);
  const auto every = std::max<std::uint64_t>(1, count / points + (count % points > 0 ? 1 : 0));
  loss_block result{count > 0 ? first + (count - 1) % every : first, 0, {}};
  for (auto step = result.first; step < end_; step += every) {
    const auto* known = find(step);
    result.all.push_back(known ? *known : step_record{});
  }
  return {every, result};
}

// A job may have hundreds of millions of steps, and seldom one that was evaluated: only these are looked at.
std::vector<std::pair<std::uint64_t, double>> loss_record::evaluations(std::uint64_t first,
                                                                       std::uint64_t points) const {
  struct part {
    std::uint64_t from; ///< its block's first step
    const block* in;
    std::size_t begin, end; ///< of what is evaluated there
  };
  std::vector<part> parts;
  std::uint64_t count = 0;
  for (auto i = blocks_.lower_bound(first / loss_block_steps); i != blocks_.end(); ++i) {
    const auto from = i->first * loss_block_steps;
    const auto& all = i->second->evaluated;
    const auto begin = std::ranges::lower_bound(all, first - std::min(first, from)) - all.begin();
    const auto end = std::ranges::lower_bound(all, end_ - std::min(end_, from)) - all.begin();
    if (begin >= end)
      continue;
    parts.push_back({from, i->second.get(), static_cast<std::size_t>(begin), static_cast<std::size_t>(end)});
    count += parts.back().end - parts.back().begin;
  }
  points = std::clamp<std::uint64_t>(points, 1, loss_block_steps);
  const auto every = std::max<std::uint64_t>(1, count / points + (count % points > 0 ? 1 : 0));
  std::vector<std::pair<std::uint64_t, double>> result;
  auto skipped = count > 0 ? (count - 1) % every : 0; // before the next one that is taken
  for (const auto& x : parts) {
    auto k = x.begin + skipped;
    for (; k < x.end; k += every)
      result.emplace_back(x.from + x.in->evaluated[k], *x.in->all[x.in->evaluated[k]].validation_loss);
    skipped = k - x.end;
  }
  return result;
}

std::uint64_t loss_record::seen_of(std::uint64_t number, const block& x) const {
  return std::min<std::uint64_t>(x.all.size(), end_ - std::min(end_, number * loss_block_steps));
}

void loss_record::share(std::uint64_t first, const loss_record& of) {
  if (const auto known = of.blocks_.find(first / loss_block_steps); known != of.blocks_.end()) {
    blocks_[known->first] = known->second;
    own_.erase(known->first);
    of.own_.erase(known->first);
  }
  end_ = std::max(end_, std::min(of.end_, first + loss_block_steps));
}

std::vector<std::uint64_t> loss_record::changed_since(const loss_record& before) const {
  std::vector<std::uint64_t> result;
  for (const auto& [number, x] : blocks_) {
    const auto known = before.blocks_.find(number);
    const auto was_seen = known == before.blocks_.end() ? 0 : before.seen_of(number, *known->second);
    const auto seen = seen_of(number, *x);
    if (seen > 0 && (seen != was_seen || known->second != x))
      result.push_back(number * loss_block_steps);
  }
  return result;
}

} // namespace parcae
