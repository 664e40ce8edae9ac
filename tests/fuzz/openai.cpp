// Bodies of OpenAI's requests, first as one of a completion, then of a chat; what is told of them.

#include "protocols/base/printable.hpp"
#include "protocols/openai/answers.hpp"
#include "protocols/openai/prompts.hpp"
#include "protocols/openai/requests.hpp"
#include "protocols/tokenizer/tokenizer_file.hpp"
#include "protocols/tokenizer/utf8.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/small_tokenizer.hpp"

#include <algorithm>
#include <string>

namespace parcae {
namespace {

/// One line of JSON.
void check_event(const std::string& x) {
  promise(x.starts_with("data: ") && x.find('\n') == x.size() - 2, "an event is one line");
  boost::json::parse(x.substr(6));
}

void check_values(const generation_request& x) {
  const auto& wish = x.sampling;
  promise(wish.temperature >= 0 && wish.temperature <= 2 && wish.top_p > 0 && wish.top_p <= 1, "drawing has bounds");
  promise(x.max_tokens.value_or(1) > 0 && x.max_tokens.value_or(1) <= 1'000'000, "answers have bounds");
  promise(x.stops.size() <= 4 && std::ranges::none_of(x.stops, &std::string::empty), "texts that end are some");
  promise(x.prompts.size() <= 64 && x.messages.size() <= 1024, "prompts have bounds");
  promise((x.call == openai_call::chat) == x.prompts.empty(), "it has prompts or messages");
}

void check(const served_model& model, openai_call call, std::string_view body) {
  try {
    auto request = parse_generation(call, body);
    check_values(request);
    request.model = model.name;
    for (const auto& x : prompts_for(model, request)) {
      promise(!x.tokens.empty() && x.tokens.size() + x.max_tokens <= model.context, "it is within the context");
      promise(std::ranges::all_of(x.tokens, [&](auto y) { return y < model.vocabulary; }), "tokens are the model's");
    }
  } catch (const openai_error& e) {
    const std::string why = e.what();
    promise(e.status == 400 && why.size() < 1000 && printable(why) == why, "a refusal is one short line");
    check_event(error_event(e));
  }
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  static const auto pairs = parse_tokenizer(boost::json::serialize(small_tokenizer()), "small");
  static const chat_writer chats(chat_form::chatml, pairs);
  static const served_model model{"m", &pairs, &chats, 256, 263};
  for (const auto call : {openai_call::completion, openai_call::chat}) {
    check(model, call, as_text(data, size));
    check_event(piece_event({call, "id", 1, "m", 2}, {0, valid_utf8(as_text(data, size)), {}, {}}));
  }
  return 0;
}
