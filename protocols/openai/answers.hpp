#pragma once

// What clients of OpenAI's API are told: whole answers, lines of streams, errors. Pure.

#include "protocols/openai/errors.hpp"
#include "protocols/openai/requests.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// What all that is told of a request begins with.
struct answer_head {
  openai_call call = openai_call::completion;
  std::string id{};           ///< of the request, such as "cmpl-7"
  std::int64_t created_s = 0; ///< since 1970
  std::string model{};
  std::int64_t seed = 0; ///< asked for, or drawn: with it the same request has the same answer
};

enum class finish_reason { stop, length };
BOOST_DESCRIBE_ENUM(finish_reason, stop, length)

/// An answer to one prompt, or what there is more of it.
struct answer_piece {
  std::uint32_t index = 0; ///< of the prompt
  std::string text{};
  std::optional<std::vector<token_id>> tokens{}; ///< if they are wished
  std::optional<finish_reason> finish{};         ///< there is no more
};

struct token_counts {
  std::uint64_t prompt = 0;
  std::uint64_t answer = 0;
};

/// A body in JSON.
std::string answer_body(const answer_head& head, const std::vector<answer_piece>& answers, const token_counts& counts);
std::string error_body(const openai_error& error);
std::string models_body(const std::string& model, std::int64_t created_s);

/// Events of a stream (text/event-stream), each with its empty line: first for each prompt of a chat who speaks, then
/// pieces, then the counts, if they are wished, then the end.
std::string speaker_event(const answer_head& head, std::uint32_t index);
std::string piece_event(const answer_head& head, const answer_piece& piece);
std::string counts_event(const answer_head& head, const token_counts& counts);
std::string error_event(const openai_error& error); ///< instead of what was to come
inline constexpr std::string_view end_event = "data: [DONE]\n\n";
inline constexpr std::string_view sign_of_life = ":\n\n"; ///< says nothing, keeps proxies from closing

} // namespace parcae
