#pragma once

// What clients of OpenAI's API ask for, as a bounded value. Pure. A field that would change the answer and is not known
// is refused, not ignored; one that changes nothing (`n` = 1, `user`) is taken.

#include "protocols/openai/errors.hpp"
#include "protocols/tokenizer/chat.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace parcae {

enum class openai_call { completion, chat };

/// How a token is drawn.
struct sampling_wish {
  double temperature = 1;             ///< 0 to 2; 0: the likeliest token
  double top_p = 1;                   ///< more than 0, at most 1
  std::uint32_t top_k = 0;            ///< of how many; 0: of all
  std::optional<std::int64_t> seed{}; ///< none: drawn
};

using text_or_tokens = std::variant<std::string, std::vector<token_id>>;

struct generation_request {
  openai_call call = openai_call::completion;
  std::string model{};
  std::vector<text_or_tokens> prompts{};     ///< each has an answer; none: a chat
  std::vector<chat_message> messages{};      ///< of a chat
  std::optional<std::uint32_t> max_tokens{}; ///< of an answer, at least 1
  sampling_wish sampling{};
  std::vector<std::string> stops{}; ///< texts that end an answer; none is empty
  bool stream = false;
  bool with_usage = false;     ///< at the end of the stream
  bool with_token_ids = false; ///< in the answer
};

/// Of the body of POST /v1/completions or /v1/chat/completions. Throws openai_error with status 400: the field, and
/// what would be right.
generation_request parse_generation(openai_call call, std::string_view body);

} // namespace parcae
