#include "protocols/openai/answers.hpp"

#include "protocols/base/enum_text.hpp"

#include <boost/json.hpp>

namespace parcae {

namespace json = boost::json;

namespace {

json::value or_null(const std::string& x) {
  return x.empty() ? json::value() : json::value(x);
}

json::object counts_of(const token_counts& x) {
  return {{"prompt_tokens", x.prompt}, {"completion_tokens", x.answer}, {"total_tokens", x.prompt + x.answer}};
}

json::object told_of(const answer_head& head, bool is_event, json::array choices) {
  const bool is_chat = head.call == openai_call::chat;
  return {{"id", head.id},
          {"object", !is_chat   ? "text_completion"
                     : is_event ? "chat.completion.chunk"
                                : "chat.completion"},
          {"created", head.created_s},
          {"model", head.model},
          {"seed", head.seed},
          {"choices", std::move(choices)}};
}

json::object choice_of(const answer_head& head, bool is_event, const answer_piece& x) {
  json::object result{{"index", x.index}};
  if (head.call == openai_call::completion) {
    result["text"] = x.text;
  } else if (is_event) {
    result["delta"] = x.text.empty() ? json::object() : json::object{{"content", x.text}};
  } else {
    result["message"] = {{"role", "assistant"}, {"content", x.text}};
  }
  result["logprobs"] = nullptr;
  result["finish_reason"] = x.finish ? json::value(enum_name(*x.finish)) : json::value();
  if (x.tokens)
    result["token_ids"] = json::array(x.tokens->begin(), x.tokens->end());
  return result;
}

json::object error_of(const openai_error& x) {
  const auto* const type = x.status >= 500   ? "server_error"
                           : x.status == 429 ? "rate_limit_error"
                           : x.status == 401 ? "authentication_error"
                                             : "invalid_request_error";
  return {{"error", {{"message", x.what()}, {"type", type}, {"param", or_null(x.field)}, {"code", or_null(x.code)}}}};
}

/// In JSON a line break is always escaped.
std::string event_of(const json::object& x) {
  return "data: " + json::serialize(x) + "\n\n";
}

} // namespace

std::string answer_body(const answer_head& head, const std::vector<answer_piece>& answers, const token_counts& counts) {
  json::array choices;
  for (const auto& x : answers)
    choices.push_back(choice_of(head, false, x));
  auto result = told_of(head, false, std::move(choices));
  result["usage"] = counts_of(counts);
  return json::serialize(result);
}

std::string error_body(const openai_error& error) {
  return json::serialize(error_of(error));
}

std::string models_body(const std::string& model, std::int64_t created_s) {
  const json::object one{{"id", model}, {"object", "model"}, {"created", created_s}, {"owned_by", "parcae"}};
  return json::serialize(json::object{{"object", "list"}, {"data", json::array{one}}});
}

std::string speaker_event(const answer_head& head, std::uint32_t index) {
  auto choice = choice_of(head, true, {.index = index});
  choice["delta"] = {{"role", "assistant"}, {"content", ""}};
  return event_of(told_of(head, true, {std::move(choice)}));
}

std::string piece_event(const answer_head& head, const answer_piece& piece) {
  return event_of(told_of(head, true, {choice_of(head, true, piece)}));
}

std::string counts_event(const answer_head& head, const token_counts& counts) {
  auto result = told_of(head, true, {});
  result["usage"] = counts_of(counts);
  return event_of(result);
}

std::string error_event(const openai_error& error) {
  return event_of(error_of(error));
}

} // namespace parcae
