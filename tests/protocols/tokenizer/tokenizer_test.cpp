// Text to tokens and back, on small tokenizers; what a file may not have; chats. Against Hugging Face's own:
// tokenizer_oracle_test.

#include "protocols/tokenizer/chat.hpp"
#include "protocols/tokenizer/tokenizer.hpp"
#include "protocols/tokenizer/tokenizer_file.hpp"
#include "protocols/tokenizer/utf8.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"
#include "tests/support/small_tokenizer.hpp"
#include "tests/support/thrown_by.hpp"

namespace parcae {
namespace {

namespace json = boost::json;

tokenizer parsed(const json::object& x) {
  return parse_tokenizer(json::serialize(x), "t.json");
}

tokenizer with_pattern(const std::string& pattern) {
  auto x = small_tokenizer();
  x["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {json::object{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
        json::object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  return parsed(x);
}

// given: bytes, damaged in the ways that UTF-8 can be / expected: as Python's decode(errors="replace")
TEST(utf8, damage_is_replaced) {
  const std::pair<std::string_view, std::string_view> table[] = {
      {"", ""},
      {"aé€𝄞", "aé€𝄞"},
      {"a\xFF\xFE", "a��"},
      {"\x80z", "�z"},
      {"\xC0\x80", "��"},               // longer than needed
      {"\xE0\x80\x80", "���"},          // likewise
      {"\xED\xA0\x80", "���"},          // half of a surrogate pair
      {"\xF4\x90\x80\x80", "����"},     // beyond Unicode
      {"\xF0\x9F\x92", "�"},            // cut: one
      {"\xF0\x9F\x92z\xE2\x82", "�z�"}, // likewise, within
      {"\xE2\xE2\x82\xAC", "�€"},
  };
  for (const auto& [bytes, text] : table)
    EXPECT_EQ(valid_utf8(bytes), text);
}

// given: text whose bytes come one by one / expected: whole characters, each with its last byte; what is cut at the end
TEST(utf8, characters_come_whole) {
  utf8_stream stream;
  std::vector<std::string> said;
  for (const auto byte : std::string_view("é\xE2\x82|€\xF0\x9F"))
    said.push_back(stream.add({&byte, 1}));
  EXPECT_THAT(said, ElementsAre("", "é", "", "", "�|", "", "", "€", "", ""));
  EXPECT_EQ(stream.end(), "�");
  EXPECT_EQ(stream.end(), "");
}

// given: texts / expected: the merge of least rank first, the leftmost of equals; not across pieces
TEST(tokenizer, merges) {
  const auto small = parsed(small_tokenizer());
  EXPECT_THAT(small.encode("hell"), ElementsAre(258));
  EXPECT_THAT(small.encode("hello he"), ElementsAre(258, 'o', 259));
  EXPECT_THAT(small.encode("lll"), ElementsAre(257, 'l'));
  EXPECT_THAT(small.encode("h e"), ElementsAre('h', ' ', 'e')); // " e" has no merge
  EXPECT_THAT(small.encode(""), IsEmpty());
  EXPECT_EQ(text_of(small, {258, 'o', 259, 999, 260}), "hello he"); // no token, a special one
}

// given: names of added tokens in text / expected: those that are special are ordinary text, whatever stands around
// them
TEST(tokenizer, special_tokens_never_come_of_text) {
  auto file = small_tokenizer();
  file["model"].as_object()["ignore_merges"] = true;
  file["model"].as_object()["vocab"].as_object()["<|im_end|>"] = 261; // so that it is a piece, and a word of its own
  file["pre_tokenizer"].as_object()["use_regex"] = false;
  const auto small = parsed(file);
  for (const std::string text : {"<|im_end|>", "a<|im_start|>b", "<|im_start|><|im_end|>", "<<|im_end|>>"}) {
    const auto tokens = small.encode(text);
    EXPECT_EQ(text_of(small, tokens), text);
    EXPECT_THAT(tokens, Not(Contains(testing::AnyOf(260u, 261u))));
  }
  EXPECT_THAT(small.encode("a<tool>b"), ElementsAre('a', 262, 'b'));
  EXPECT_EQ(small.special("<|im_end|>"), 261u);
  EXPECT_FALSE(small.special("<tool>"));
}

// given: bytes as tokens / expected: each byte's number; an answer's damaged bytes are replaced
TEST(tokenizer, bytes) {
  const auto bytes = byte_tokenizer();
  EXPECT_THAT(bytes.encode("aé"), ElementsAre(97, 0xC3, 0xA9));
  EXPECT_EQ(text_of(bytes, {0xC3, 97, 256}), "�a");
}

// given: a text that is too long; one of the largest size, of each kind that patterns might run away on / expected: a
// line; an answer within the test's time
TEST(tokenizer, text_is_bounded) {
  const std::string qwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                            R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto tokens = with_pattern(qwen2);
  EXPECT_EQ(thrown_by<tokenizer_error>([&] { tokens.encode(std::string(max_text_bytes + 1, 'x')); }),
            "a text has at most 1 MiB");
  for (const std::string piece :
       {" ", "\n", "a", "'", "\xFF", "\n ", "hell", "7", "<|im_end|", "\xCC\x81\xCC\xA3", "e\xCC\x81"}) {
    std::string text;
    while (text.size() + piece.size() <= max_text_bytes)
      text += piece;
    EXPECT_EQ(text_of(tokens, tokens.encode(text)), valid_utf8(text));
  }
}

// given: a pattern that takes exponentially many steps on some text / expected: a line, at once
TEST(tokenizer, patterns_do_not_run_away) {
  const auto tokens = with_pattern("(?:a+)+b|c");
  EXPECT_THAT(thrown_by<tokenizer_error>([&] { tokens.encode(std::string(1000, 'a')); }),
              HasSubstr("pattern gives up on this text"));
}

// given: patterns with what Oniguruma and PCRE2 take differently / expected: refused by name
TEST(tokenizer, patterns_that_are_not_understood) {
  const std::pair<std::string, std::string> table[] = {
      {R"(\w+)", R"(has \w)"},
      {R"(\p{Han})", "no general category"},
      {"[a[bc]]", "a class within a class"},
      {"[a-z&&b]", "a class within"},
      {"[]a]", "begins with ]"},
      {"(?>a)", "a group that begins with (?>"},
      {"a{,3}", "has {,"},
      {"a{3}+", "has }+"},
      {"^a", "has ^"},
      {"a|b$", "has $"},
      {".", "has ."},
      {"a*", "may match nothing"},
      {"(a", "is wrong"},
      {"a\\", "is wrong"},
      {std::string(5000, 'a'), "longer"},
      {R"(\p{L)", "no general"},
  };
  for (const auto& [pattern, why] : table)
    EXPECT_THAT(thrown_by<tokenizer_error>([&] { with_pattern(pattern); }),
                AllOf(StartsWith("t.json: pre_tokenizer.pretokenizers[0].pattern.Regex the pattern"), HasSubstr(why)));
}

// given: files with a field that is not understood / expected: a line that names file and field
TEST(tokenizer, files_that_are_not_understood) {
  const auto refused = [](const std::string& where, const json::value& value) {
    json::value file = small_tokenizer();
    file.at_pointer(where) = value;
    return thrown_by<tokenizer_error>([&] { parsed(file.as_object()); });
  };
  const std::tuple<std::string, json::value, std::string> table[] = {
      {"/model/type", "Unigram", R"(model is "Unigram"; known are BPE)"},
      {"/model/dropout", 0.1, "model.dropout is not understood"},
      {"/model/unk_token", "<unk>", "model.unk_token is not understood"},
      {"/model/byte_fallback", true, "model.byte_fallback is not understood"},
      {"/model/vocab", json::object{{"a", 0}}, "model.vocab has no token for byte 0"},
      {"/model/vocab/a", -1, R"(model.vocab's "a" is no token's number)"},
      {"/model/vocab/a", 1e9, R"(model.vocab's "a" is no token's number)"},
      {"/model/merges", json::array{"a"}, "model.merges[0] has no two names"},
      {"/model/merges", json::array{"a b"}, R"(model.merges[0] has to do with "ab", which is no token)"},
      {"/model/merges", nullptr, "model.merges is no list"},
      {"/model", 1, "model is no object"},
      {"/normalizer", json::object{{"type", "Lowercase"}}, R"(normalizer is "Lowercase"; known are null, NFC)"},
      {"/pre_tokenizer", nullptr, "pre_tokenizer has no ByteLevel"},
      {"/pre_tokenizer/type", "Metaspace", R"(pre_tokenizer is "Metaspace"; known are)"},
      {"/decoder", nullptr, R"(decoder is "null"; known are ByteLevel)"},
      {"/post_processor", json::object{{"type", "BertProcessing"}}, R"(post_processor is "BertProcessing")"},
      {"/added_tokens/2/lstrip", true, "added_tokens[2].lstrip is not understood"},
      {"/added_tokens/2/content", "", "added_tokens[2] has no content"},
      {"/added_tokens/0/id", "x", "added_tokens[0].id is no token's number"},
  };
  for (const auto& [where, value, why] : table)
    EXPECT_THAT(refused(where, value), StartsWith("t.json: " + why));
  EXPECT_THAT(thrown_by<tokenizer_error>([] { parse_tokenizer("{", "t.json"); }), StartsWith("t.json: is no JSON: "));
  EXPECT_THAT(thrown_by<tokenizer_error>([] { parse_tokenizer("[]", "t.json"); }),
              StartsWith("t.json: it is no object"));
  EXPECT_THAT(thrown_by<tokenizer_error>([] { read_tokenizer("/no/such/t.json"); }), StartsWith("/no/such/t.json "));
  const own_folder folder;
  write_file(folder / "tokenizer.json", json::serialize(small_tokenizer()));
  EXPECT_THAT(read_tokenizer(folder / "tokenizer.json").encode("hell"), ElementsAre(258));
}

// given: a chat in each form / expected: the form's marks around what was said, which cannot forge them
TEST(chat, forms) {
  const std::vector<chat_message> messages{{chat_role::system, " Be brief.\n"}, {chat_role::user, "hi<|im_end|>"}};
  auto file = small_tokenizer();
  const auto small = parsed(file);
  const auto shown = [](const tokenizer& with, const std::vector<token_id>& tokens) { // special tokens by number
    std::string result;
    for (const auto x : tokens)
      result += with.bytes_of(x).empty() ? "[" + std::to_string(x) + "]" : std::string(with.bytes_of(x));
    return result;
  };
  const chat_writer chatml(chat_form::chatml, small);
  EXPECT_EQ(shown(small, chatml.prompt_of(messages)),
            "[260]system\n Be brief.\n[261]\n[260]user\nhi<|im_end|>[261]\n[260]assistant\n");
  EXPECT_THAT(chatml.ends(), ElementsAre(261));
  EXPECT_THAT(chatml.stops(), IsEmpty());
  const chat_writer plain(chat_form::plain, small);
  EXPECT_EQ(shown(small, plain.prompt_of(messages)), "system:  Be brief.\n\nuser: hi<|im_end|>\nassistant:");
  EXPECT_THAT(plain.stops(), ElementsAre("\nuser:"));
  EXPECT_EQ(thrown_by<tokenizer_error>([&] { chat_writer(chat_form::llama3, small); }),
            "chats of the form llama3 need the special token <|begin_of_text|>, which the tokenizer has not");
  for (const auto* name : {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}) {
    auto& added = file["added_tokens"].as_array();
    added.push_back({{"id", 260 + added.size()}, {"content", name}, {"special", true}});
  }
  const auto large = parsed(file);
  const chat_writer llama3(chat_form::llama3, large);
  EXPECT_EQ(shown(large, llama3.prompt_of(messages)),
            "[263][264]system[265]\n\nBe brief.[266][264]user[265]\n\nhi<|im_end|>[266][264]assistant[265]\n\n");
  EXPECT_THAT(llama3.ends(), ElementsAre(266));
}

} // namespace
} // namespace parcae
