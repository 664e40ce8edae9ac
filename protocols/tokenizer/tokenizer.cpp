#include "protocols/tokenizer/tokenizer.hpp"

#include "protocols/tokenizer/normal_form.hpp"
#include "protocols/tokenizer/utf8.hpp"

#include <algorithm>

namespace parcae {

tokenizer::tokenizer(tokenizer_parts parts) : parts_(std::move(parts)) {
  for (const auto& x : parts_.added)
    (x.normal ? in_normal_ : in_text_).add(x);
}

std::vector<token_id> tokenizer::encode(std::string_view text) const {
  if (text.size() > max_text_bytes)
    throw tokenizer_error("a text has at most 1 MiB");
  std::vector<token_id> result;
  const auto encode_ordinary = [&](std::string_view part) {
    std::string with_space;
    if (parts_.space_in_front && !part.starts_with(' '))
      part = with_space.append(" ").append(part);
    std::vector<std::string_view> pieces{part};
    for (const auto& pattern : parts_.patterns)
      pieces = pattern.split(pieces);
    for (const auto piece : pieces)
      parts_.pairs.encode(piece, result);
  };
  const auto encode_in = [&](const added_tokens& in, std::string_view part, const auto& encode_rest) {
    in.for_each_part(part, [&](std::string_view x, token_id id) {
      if (id != no_token)
        result.push_back(id);
      else
        encode_rest(x);
    });
  };
  encode_in(in_text_, valid_utf8(text), [&](std::string_view part) {
    const auto normal = parts_.to_normal_form ? normal_form(part) : std::string(part);
    encode_in(in_normal_, normal, encode_ordinary);
  });
  return result;
}

std::string_view tokenizer::bytes_of(token_id x) const {
  return x < parts_.tokens.size() ? std::string_view(parts_.tokens[x]) : std::string_view();
}

std::optional<token_id> tokenizer::special(std::string_view name) const {
  const auto found = std::ranges::find_if(parts_.added, [&](const auto& x) { return x.special && x.content == name; });
  return found == parts_.added.end() ? std::nullopt : std::optional(found->id);
}

tokenizer byte_tokenizer() {
  tokenizer_parts parts;
  for (token_id x = 0; x < 256; ++x) {
    parts.tokens.push_back({static_cast<char>(x)});
    parts.pairs.set_byte(static_cast<unsigned char>(x), x);
  }
  return tokenizer(std::move(parts));
}

std::string text_of(const tokenizer& with, const std::vector<token_id>& tokens) {
  utf8_stream text;
  std::string result;
  for (const auto x : tokens)
    result += text.add(with.bytes_of(x));
  return result += text.end();
}

} // namespace parcae
