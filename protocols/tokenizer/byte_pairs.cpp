#include "protocols/tokenizer/byte_pairs.hpp"

#include <queue>
#include <tuple>

namespace parcae {

namespace {

constexpr std::uint32_t nowhere = UINT32_MAX;

struct symbol {
  token_id id; ///< no_token: it was merged into the one before it
  std::uint32_t before, after;
};

/// A merge of a symbol with the one behind it that was possible when it was found.
struct candidate {
  std::uint32_t rank;
  std::uint32_t at;
  token_id made;

  bool operator>(const candidate& x) const { return std::tie(rank, at) > std::tie(x.rank, x.at); }
};

std::uint64_t key_of(token_id left, token_id right) {
  return std::uint64_t{left} << 32 | right;
}

} // namespace

void byte_pairs::add_merge(token_id left, token_id right, token_id made) {
  merges_.insert_or_assign(key_of(left, right), merge{next_rank_++, made});
}

const byte_pairs::merge* byte_pairs::merge_of(token_id left, token_id right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void byte_pairs::encode(std::string_view piece, std::vector<token_id>& to) const {
  if (const auto found = whole_.find(piece); found != whole_.end())
    return to.push_back(found->second);
  std::vector<symbol> symbols;
  for (const unsigned char byte : piece)
    if (has_byte(byte)) {
      const auto i = static_cast<std::uint32_t>(symbols.size());
      symbols.push_back({of_byte_[byte], i - 1, i + 1}); // the first has nowhere before it
    }
  if (symbols.empty())
    return;
  symbols.back().after = nowhere;
  std::priority_queue<candidate, std::vector<candidate>, std::greater<>> queue;
  const auto consider = [&](std::uint32_t at) {
    if (const auto next = symbols[at].after; next != nowhere)
      if (const auto* x = merge_of(symbols[at].id, symbols[next].id))
        queue.push({x->rank, at, x->made});
  };
  for (std::uint32_t i = 0; i < symbols.size(); ++i)
    consider(i);
  while (!queue.empty()) {
    const auto [rank, at, made] = queue.top();
    queue.pop();
    auto& left = symbols[at];
    if (left.after == nowhere)
      continue;
    auto& right = symbols[left.after];
    const auto* x = merge_of(left.id, right.id);
    if (!x || x->made != made)
      continue; // one of the two was merged meanwhile
    left.id = made;
    left.after = right.after;
    right.id = no_token;
    if (left.after != nowhere)
      symbols[left.after].before = at;
    if (left.before != nowhere)
      consider(left.before);
    consider(at);
  }
  for (std::uint32_t i = 0; i != nowhere; i = symbols[i].after)
    to.push_back(symbols[i].id);
}

} // namespace parcae
