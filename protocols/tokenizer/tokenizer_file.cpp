#include "protocols/tokenizer/tokenizer_file.hpp"

#include "protocols/base/input_file.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/suggestion.hpp"
#include "protocols/tokenizer/normal_form.hpp"
#include "protocols/tokenizer/utf8.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <map>

namespace parcae {

namespace json = boost::json;

namespace {

constexpr std::uint64_t max_file_bytes = 64 << 20;
constexpr token_id max_tokens = 1'000'000;
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A value of the file with the way to it, for messages.
class file_field {
public:
  file_field(const json::value& value, std::string path) : value_(&value), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw tokenizer_error((path_.empty() ? "it" : path_) + " " + why);
  }

  /// Null where there is none.
  file_field operator[](std::string_view key) const {
    static const json::value none;
    const auto* const found = object().if_contains({key.data(), key.size()});
    return {found ? *found : none, path_.empty() ? std::string(key) : path_ + "." + std::string(key)};
  }

  bool is_null() const { return value_->is_null(); }

  const json::object& object() const {
    if (!value_->is_object())
      refuse("is no object");
    return value_->get_object();
  }

  std::vector<file_field> list() const {
    if (!value_->is_array())
      refuse("is no list");
    std::vector<file_field> result;
    for (const auto& x : value_->get_array())
      result.emplace_back(x, path_ + "[" + std::to_string(result.size()) + "]");
    return result;
  }

  std::string_view text() const {
    if (!value_->is_string())
      refuse("is no text");
    return {value_->get_string().data(), value_->get_string().size()};
  }

  bool flag() const {
    if (!is_null() && !value_->is_bool())
      refuse("is neither true nor false");
    return !is_null() && value_->get_bool();
  }

  token_id id() const {
    if (!value_->is_int64() || value_->get_int64() < 0 || value_->get_int64() >= max_tokens)
      refuse("is no token's number");
    return static_cast<token_id>(value_->get_int64());
  }

  bool is_list() const { return value_->is_array(); }
  bool is_empty_text() const { return value_->is_string() && value_->get_string().empty(); }

private:
  const json::value* value_;
  std::string path_;
};

/// What is shown of a name in a message.
std::string shown(std::string_view x) {
  return '"' + printable(x, 60) + '"';
}

/// A character of tokens' names stands for a byte: itself if it can be seen, else one from U+0100 on.
std::map<char32_t, unsigned char> byte_alphabet() {
  std::map<char32_t, unsigned char> result;
  char32_t next = 0x100;
  for (unsigned x = 0; x < 256; ++x) {
    const bool can_be_seen = (x > 0x20 && x < 0x7F) || (x > 0xA0 && x != 0xAD);
    result.emplace(can_be_seen ? x : next++, static_cast<unsigned char>(x));
  }
  return result;
}

/// The bytes that a token's name stands for. Names that are not of the alphabet are taken as they are; no text becomes
/// such a token.
struct named_bytes {
  std::string bytes;
  bool of_alphabet = true;
};

named_bytes bytes_of_name(std::string_view name) {
  static const auto alphabet = byte_alphabet();
  named_bytes result;
  for (auto rest = name; !rest.empty();) {
    const auto found = alphabet.find(take_valid(rest));
    if (found == alphabet.end())
      return {std::string(name), false};
    result.bytes += static_cast<char>(found->second);
  }
  return result;
}

class tokenizer_reader {
public:
  explicit tokenizer_reader(const file_field& root) : root_(root) {}

  tokenizer_parts read() {
    parts_.to_normal_form = expect(root_["normalizer"], {"null", "NFC"}) == "NFC";
    read_vocabulary(root_["model"]);
    if (const auto added = root_["added_tokens"]; !added.is_null())
      for (const auto& x : added.list())
        read_added(x);
    read_pairs(root_["model"]);
    read_pre_tokenizer(root_["pre_tokenizer"]);
    if (!is_byte_level_)
      root_["pre_tokenizer"].refuse("has no ByteLevel, without which tokens are no bytes");
    read_post_processor(root_["post_processor"]);
    expect(root_["decoder"], {"ByteLevel"});
    return std::move(parts_);
  }

private:
  /// Its type, which is one of these.
  static std::string_view expect(const file_field& x, std::initializer_list<std::string_view> known) {
    const auto type = x.is_null() ? "null" : x["type"].text();
    if (std::ranges::find(known, type) == known.end())
      x.refuse("is " + shown(type) + "; known are " + listed(known));
    return type;
  }

  void read_vocabulary(const file_field& model) {
    if (!model["type"].is_null()) // old files have none
      expect(model, {"BPE"});
    for (const auto* name : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
      if (const auto x = model[name]; !x.is_null() && !x.is_empty_text())
        x.refuse("is not understood: it must be null");
    if (const auto x = model["byte_fallback"]; x.flag())
      x.refuse("is not understood: it must be false");
    const auto vocabulary = model["vocab"];
    for (const auto& [name, value] : vocabulary.object()) {
      const auto id = file_field(value, "model.vocab's " + shown(name)).id();
      ids_.emplace(name, id);
      set_bytes(id, bytes_of_name(name).bytes);
    }
  }

  void read_added(const file_field& field) {
    const auto content = field["content"].text();
    if (content.empty())
      field.refuse("has no content");
    added_token x{std::string(content), field["id"].id(), field["special"].flag(), field["normalized"].flag()};
    set_bytes(x.id, x.special ? std::string() : bytes_of_name(content).bytes);
    if (x.special) // no text becomes it, by no merge either
      ids_.erase(x.content);
    else
      for (const auto* name : {"single_word", "lstrip", "rstrip"})
        if (field[name].flag())
          field[name].refuse("is not understood of a token that is not special: it must be false");
    if (x.normal && parts_.to_normal_form)
      x.content = normal_form(x.content);
    parts_.added.push_back(std::move(x));
  }

  void read_pairs(const file_field& model) {
    const auto whole = model["ignore_merges"].flag();
    for (const auto& [name, id] : ids_) {
      const auto x = bytes_of_name(name);
      if (x.of_alphabet && x.bytes.size() == 1)
        parts_.pairs.set_byte(static_cast<unsigned char>(x.bytes[0]), id);
      if (x.of_alphabet && whole)
        parts_.pairs.add_whole(x.bytes, id);
    }
    for (unsigned byte = 0; byte < 0xF5; ++byte)
      if (byte != 0xC0 && byte != 0xC1 && !parts_.pairs.has_byte(static_cast<unsigned char>(byte)))
        model["vocab"].refuse("has no token for byte " + std::to_string(byte) + ", which text may have");
    for (const auto& x : model["merges"].list()) {
      const auto [left, right] = pair_of(x);
      parts_.pairs.add_merge(id_of(left, x), id_of(right, x), id_of(left + right, x));
    }
  }

  /// "a b" or ["a", "b"].
  static std::pair<std::string, std::string> pair_of(const file_field& x) {
    if (x.is_list()) {
      const auto both = x.list();
      if (both.size() != 2)
        x.refuse("has no two names");
      return {std::string(both[0].text()), std::string(both[1].text())};
    }
    const auto both = x.text();
    const auto space = both.find(' ');
    if (space == both.npos)
      x.refuse("has no two names");
    return {std::string(both.substr(0, space)), std::string(both.substr(space + 1))};
  }

  token_id id_of(const std::string& name, const file_field& merge) const {
    const auto found = ids_.find(name);
    if (found == ids_.end())
      merge.refuse("has to do with " + shown(name) + ", which is no token that text may become");
    return found->second;
  }

  void read_pre_tokenizer(const file_field& x) {
    const auto type = expect(x, {"null", "Sequence", "Split", "Digits", "ByteLevel"});
    if (is_byte_level_)
      x.refuse("stands behind ByteLevel");
    if (type == "Sequence") {
      for (const auto& part : x["pretokenizers"].list())
        read_pre_tokenizer(part);
    } else if (type == "Digits") {
      parts_.patterns.emplace_back(x["individual_digits"].flag() ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "Split") {
      if (const auto behavior = x["behavior"]; behavior.text() != "Isolated")
        behavior.refuse("is " + shown(behavior.text()) + "; known is Isolated");
      add_pattern(x["pattern"]["Regex"]);
    } else if (type == "ByteLevel") {
      read_byte_level(x);
    }
  }

  void read_byte_level(const file_field& x) {
    is_byte_level_ = true;
    parts_.space_in_front = x["add_prefix_space"].flag();
    if (parts_.space_in_front && !parts_.patterns.empty())
      x["add_prefix_space"].refuse("is not understood behind another pre-tokenizer: it must be false");
    if (x["use_regex"].is_null() || x["use_regex"].flag())
      parts_.patterns.emplace_back(gpt2_pattern);
  }

  void add_pattern(const file_field& x) {
    try {
      parts_.patterns.emplace_back(x.text());
    } catch (const tokenizer_error& e) {
      x.refuse(e.what());
    }
  }

  void read_post_processor(const file_field& x) {
    const auto type = expect(x, {"null", "ByteLevel", "Sequence", "TemplateProcessing"});
    if (type == "Sequence")
      for (const auto& part : x["processors"].list())
        read_post_processor(part);
    if (type != "TemplateProcessing")
      return;
    bool behind = false;
    for (const auto& part : x["single"].list()) {
      const auto token = part["SpecialToken"];
      if (token.is_null())
        behind = true; // the text itself
      else if (behind)
        token.refuse("stands behind the text, where an answer begins");
      else
        for (const auto& id : x["special_tokens"][token["id"].text()]["ids"].list())
          parts_.opening.push_back(id.id());
    }
  }

  void set_bytes(token_id id, std::string bytes) {
    if (id >= parts_.tokens.size())
      parts_.tokens.resize(id + 1);
    parts_.tokens[id] = std::move(bytes);
  }

  const file_field& root_;
  tokenizer_parts parts_;
  std::map<std::string, token_id, std::less<>> ids_; ///< of tokens that text may become, by their names in the file
  bool is_byte_level_ = false;
};

} // namespace

tokenizer parse_tokenizer(std::string_view text, const std::string& name) {
  const auto refuse = [&](const std::string& why) { return tokenizer_error(name + ": " + why); };
  boost::system::error_code bad;
  const auto root = json::parse({text.data(), text.size()}, bad);
  if (bad)
    throw refuse("is no JSON: " + bad.message());
  try {
    return tokenizer(tokenizer_reader(file_field(root, "")).read());
  } catch (const tokenizer_error& e) {
    throw refuse(e.what());
  }
}

tokenizer read_tokenizer(const std::filesystem::path& file) {
  try {
    return parse_tokenizer(contents_of(file, max_file_bytes), file.string());
  } catch (const input_error& e) {
    throw tokenizer_error(e.what());
  }
}

} // namespace parcae
