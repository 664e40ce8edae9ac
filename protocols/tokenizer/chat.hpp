#pragma once

// Chats as prompts, by named forms: a template of the model's own would be a program (Jinja) that came with it.

#include "protocols/tokenizer/tokenizer.hpp"

#include <boost/describe/enum.hpp>

#include <string>
#include <vector>

namespace parcae {

/// plain: "user: TEXT" a line, for models without special tokens; chatml: Qwen 2, SmolLM; llama3: Llama 3.
enum class chat_form { plain, chatml, llama3 };
BOOST_DESCRIBE_ENUM(chat_form, plain, chatml, llama3)

enum class chat_role { system, user, assistant };
BOOST_DESCRIBE_ENUM(chat_role, system, user, assistant)

struct chat_message {
  chat_role role = chat_role::user;
  std::string text{};
};

/// Immutable: any thread.
class chat_writer {
public:
  /// Throws tokenizer_error: it has not the special tokens of that form. It must outlive this.
  chat_writer(chat_form form, const tokenizer& with);

  /// The prompt that an assistant's answer follows. Throws tokenizer_error, as encode.
  std::vector<token_id> prompt_of(const std::vector<chat_message>& messages) const;

  const std::vector<token_id>& ends() const { return ends_; }      ///< tokens that end an answer
  const std::vector<std::string>& stops() const { return stops_; } ///< texts that end an answer

private:
  /// Special tokens by their place; no_token: none there.
  struct marks {
    token_id start, before_role, behind_role, behind_text;
  };

  const chat_form form_;
  const tokenizer& tokenizer_;
  marks marks_;
  std::vector<token_id> ends_;
  std::vector<std::string> stops_;
};

} // namespace parcae
