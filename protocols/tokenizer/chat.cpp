#include "protocols/tokenizer/chat.hpp"

#include "protocols/base/enum_text.hpp"

#include <algorithm>

namespace parcae {

namespace {

/// A prompt is `start`, the messages, and what stands before an answer's text. Names of special tokens may be empty.
struct form_words {
  std::string_view start, before_role, behind_role, behind_text; ///< special tokens
  std::string_view gap, gap_of_answer;                           ///< text between a role and what it says
  std::string_view line_end;                                     ///< text behind a message
  bool trimmed;                                                  ///< what is said has no space around it
};

form_words words_of(chat_form x) {
  switch (x) {
  case chat_form::chatml:
    return {"", "<|im_start|>", "", "<|im_end|>", "\n", "\n", "\n", false};
  case chat_form::llama3:
    return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "\n\n", "\n\n", "", true};
  case chat_form::plain:
    break;
  }
  return {"", "", "", "", ": ", ":", "\n", false};
}

/// As Python's str.strip() has it.
std::string_view without_space_around(std::string_view x) {
  constexpr std::string_view spaces[] = {"\t",     "\n",     "\v",     "\f",     "\r",     "\x1C",   "\x1D",   "\x1E",
                                         "\x1F",   " ",      "\u0085", "\u00A0", "\u1680", "\u2000", "\u2001", "\u2002",
                                         "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200A",
                                         "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"};
  const auto* const none = std::end(spaces);
  const auto find = [&](auto is_there) { return std::ranges::find_if(spaces, is_there); };
  for (auto i = none; (i = find([&](auto y) { return x.starts_with(y); })) != none;)
    x.remove_prefix(i->size());
  for (auto i = none; (i = find([&](auto y) { return x.ends_with(y); })) != none;)
    x.remove_suffix(i->size());
  return x;
}

/// Text and special tokens one after the other; text between two of these is encoded as one.
class prompt_builder {
public:
  explicit prompt_builder(const tokenizer& with) : tokenizer_(with) {}

  prompt_builder& text(std::string_view x) {
    text_ += x;
    return *this;
  }

  prompt_builder& special(token_id x) {
    if (x == no_token)
      return *this;
    encode();
    result_.push_back(x);
    return *this;
  }

  std::vector<token_id> done() {
    encode();
    return std::move(result_);
  }

private:
  void encode() {
    const auto tokens = tokenizer_.encode(text_);
    result_.insert(result_.end(), tokens.begin(), tokens.end());
    text_.clear();
  }

  const tokenizer& tokenizer_;
  std::string text_;
  std::vector<token_id> result_;
};

} // namespace

chat_writer::chat_writer(chat_form form, const tokenizer& with) : form_(form), tokenizer_(with) {
  const auto words = words_of(form);
  const auto found = [&](std::string_view name) {
    if (name.empty())
      return no_token;
    if (const auto x = with.special(name))
      return *x;
    throw tokenizer_error("chats of the form " + std::string(enum_name(form)) + " need the special token " +
                          std::string(name) + ", which the tokenizer has not");
  };
  marks_ = {found(words.start), found(words.before_role), found(words.behind_role), found(words.behind_text)};
  if (form == chat_form::plain)
    stops_.emplace_back("\nuser:");
  else
    ends_.push_back(marks_.behind_text);
}

std::vector<token_id> chat_writer::prompt_of(const std::vector<chat_message>& messages) const {
  const auto words = words_of(form_);
  prompt_builder prompt(tokenizer_);
  if (form_ == chat_form::plain)
    for (const auto x : tokenizer_.opening())
      prompt.special(x);
  prompt.special(marks_.start);
  const auto begin = [&](chat_role role) {
    prompt.special(marks_.before_role).text(enum_name(role)).special(marks_.behind_role);
  };
  for (const auto& x : messages) {
    begin(x.role);
    prompt.text(words.gap).text(words.trimmed ? without_space_around(x.text) : x.text);
    prompt.special(marks_.behind_text).text(words.line_end);
  }
  begin(chat_role::assistant);
  return prompt.text(words.gap_of_answer).done();
}

} // namespace parcae
