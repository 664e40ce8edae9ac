#pragma once

// What a request asks for of the model that is served. Pure.

#include "protocols/openai/requests.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

struct served_model {
  std::string name;                   ///< as requests say it
  const tokenizer* text = nullptr;    ///< none: it is asked with tokens, and answers with them
  const chat_writer* chats = nullptr; ///< none: it has no form of chats
  std::uint32_t context = 0;          ///< positions of a prompt and its answer
  std::uint32_t vocabulary = 0;       ///< tokens are below it
};

struct prompt_wish {
  std::vector<token_id> tokens; ///< not empty
  std::uint32_t max_tokens = 0; ///< of the answer; with the prompt they are within the context
};

/// One for each answer. Without max_tokens a completion has 16 tokens at most, as OpenAI's, a chat what the context
/// leaves. Throws openai_error: 404 for another model; else 400 with the field, and what would be right.
std::vector<prompt_wish> prompts_for(const served_model& model, const generation_request& request);

} // namespace parcae
