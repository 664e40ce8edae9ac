// tokenizer.json; patterns of such files, a line each, and text that they cut; text, and tokens.

#include "protocols/base/printable.hpp"
#include "protocols/tokenizer/chat.hpp"
#include "protocols/tokenizer/tokenizer_file.hpp"
#include "protocols/tokenizer/utf8.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/small_tokenizer.hpp"

#include <algorithm>
#include <string>

namespace parcae {
namespace {

/// Refuses only as it says.
template <class Function>
void try_it(Function f) {
  try {
    f();
  } catch (const tokenizer_error& e) {
    const std::string why = e.what();
    promise(!why.empty() && why.size() < 1000 && printable(why) == why, "a reason is one short line");
  }
}

void check_pattern(std::string_view pattern, std::string_view text) {
  const split_pattern cuts(pattern);
  std::string whole;
  for (const auto piece : cuts.split({text})) {
    promise(!piece.empty(), "no piece is empty");
    whole += piece;
  }
  promise(whole == text, "the pieces are the text");
}

void check_text(const tokenizer& with, std::string_view text) {
  const auto valid = valid_utf8(text);
  const auto tokens = with.encode(text);
  promise(tokens.size() <= valid.size(), "no token is empty");
  promise(std::ranges::none_of(tokens, [&](auto x) { return with.bytes_of(x).empty(); }), "no token is special");
  promise(text_of(with, tokens) == valid, "tokens are the text");
}

void check_stream(std::string_view bytes) {
  utf8_stream stream;
  std::string said;
  for (const auto byte : bytes)
    said += stream.add({&byte, 1});
  promise(said + stream.end() == valid_utf8(bytes), "pieces are the whole");
  promise(valid_utf8(said) == said, "what is said is valid");
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  static const auto bytes = byte_tokenizer();
  static const auto pairs = parse_tokenizer(boost::json::serialize(small_tokenizer()), "small");
  fuzz_input input(data, size);
  const auto all = input.rest(), line = input.take_line(), rest = input.rest();
  try_it([&] {
    const auto x = parse_tokenizer(all, "t.json");
    for (const auto id : x.encode("hell is <|im_end|> other people"))
      promise(!x.bytes_of(id).empty(), "no token is special");
  });
  try_it([&] { check_pattern(line, valid_utf8(rest)); });
  try_it([&] { chat_writer(chat_form::chatml, pairs).prompt_of({{chat_role::user, std::string(all)}}); });
  check_text(bytes, all);
  check_text(pairs, all);
  check_stream(all);
  return 0;
}
