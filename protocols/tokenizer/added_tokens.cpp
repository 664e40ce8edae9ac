#include "protocols/tokenizer/added_tokens.hpp"

namespace parcae {

namespace {

std::uint64_t key_of(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

} // namespace

void added_tokens::add(const added_token& x) {
  std::uint32_t at = 0;
  for (const auto byte : x.content) {
    const auto [place, is_new] = next_.try_emplace(key_of(at, byte), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new)
      nodes_.emplace_back();
    at = place->second;
  }
  nodes_[at] = {true, x.special ? no_token : x.id};
}

std::pair<std::size_t, token_id> added_tokens::longest_at(std::string_view text) const {
  std::pair<std::size_t, token_id> result{0, no_token};
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto found = next_.find(key_of(at, text[i]));
    if (found == next_.end())
      break;
    at = found->second;
    if (nodes_[at].ends)
      result = {i + 1, nodes_[at].id};
  }
  return result;
}

} // namespace parcae
