#pragma once

#include "protocols/tokenizer/utf8.hpp"

#include <boost/json.hpp>

#include <string>

namespace parcae {

/// A tokenizer.json with GPT-2's pattern: the bytes' tokens in order of their characters, then "he" (256), "ll" (257),
/// "hell" (258), "Ġhe" (259) by merges, the special "<|im_start|>" (260), "<|im_end|>" (261), and "<tool>" (262).
inline boost::json::object small_tokenizer() {
  namespace json = boost::json;
  json::object vocabulary;
  std::string names[256];
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool can_be_seen = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    append_utf8(names[byte], can_be_seen ? byte : next++);
  }
  for (const auto& name : names)
    vocabulary.emplace(name, vocabulary.size());
  for (const auto* name : {"he", "ll", "hell", "Ġhe"})
    vocabulary.emplace(name, vocabulary.size());
  json::array added;
  for (const auto* name : {"<|im_start|>", "<|im_end|>", "<tool>"})
    added.push_back({{"id", 260 + added.size()},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", name[1] == '|'}});
  return {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"byte_fallback", false},
        {"vocab", vocabulary},
        {"merges", {json::array{"h", "e"}, json::array{"l", "l"}, json::array{"he", "ll"}, json::array{"Ġ", "he"}}}}}};
}

} // namespace parcae
