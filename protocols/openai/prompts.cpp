#include "protocols/openai/prompts.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

namespace parcae {

namespace {

constexpr std::uint32_t tokens_of_completion = 16;

std::string prompt_field(const generation_request& x) {
  return x.call == openai_call::chat ? "messages" : "prompt";
}

std::vector<token_id> tokens_of(const served_model& model, const std::string& text) {
  if (!model.text)
    throw openai_error(400, "prompt must be a list of tokens: this model has no tokenizer", "prompt");
  auto result = model.text->opening();
  std::ranges::copy(model.text->encode(text), std::back_inserter(result));
  return result;
}

prompt_wish wish_of(const served_model& model, const generation_request& request, std::vector<token_id> tokens) {
  const auto field = prompt_field(request);
  const auto refuse = [](const std::string& of, const std::string& why, const char* code = "") {
    throw openai_error(400, of + " " + why, of, code);
  };
  if (tokens.empty())
    refuse(field, "is empty: an answer follows one token at least");
  if (const auto most = std::ranges::max(tokens); most >= model.vocabulary)
    refuse(field, "has token " + std::to_string(most) + "; tokens are below " + std::to_string(model.vocabulary));
  const auto left = model.context - std::min<std::size_t>(model.context, tokens.size());
  std::size_t wanted = request.call == openai_call::chat ? std::max<std::size_t>(1, left) : tokens_of_completion;
  if (request.max_tokens)
    wanted = *request.max_tokens;
  if (wanted > left)
    refuse(request.max_tokens ? "max_tokens" : field,
           "leads beyond the context of " + counted(model.context, "token") + ": the prompt has " +
               std::to_string(tokens.size()) + ", the answer up to " + std::to_string(wanted),
           "context_length_exceeded");
  return {std::move(tokens), static_cast<std::uint32_t>(wanted)};
}

} // namespace

std::vector<prompt_wish> prompts_for(const served_model& model, const generation_request& request) {
  if (request.model != model.name)
    throw openai_error(404, "model " + printable(request.model, 60) + " is not served; " + model.name + " is", "model",
                       "model_not_found");
  if (!request.stops.empty() && !model.text)
    throw openai_error(400, "stop must be left out: this model has no tokenizer", "stop");
  std::vector<prompt_wish> result;
  try {
    for (const auto& x : request.prompts) {
      const auto* const text = std::get_if<std::string>(&x);
      result.push_back(wish_of(model, request, text ? tokens_of(model, *text) : std::get<1>(x)));
    }
    if (request.call == openai_call::chat) {
      if (!model.chats)
        throw openai_error(400, "messages have no form with this model; /v1/completions takes a prompt", "messages");
      result.push_back(wish_of(model, request, model.chats->prompt_of(request.messages)));
    }
  } catch (const tokenizer_error& e) {
    throw openai_error(400, e.what(), prompt_field(request));
  }
  return result;
}

} // namespace parcae
