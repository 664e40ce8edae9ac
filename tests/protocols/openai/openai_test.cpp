// Requests of OpenAI's clients as values, what is refused, and what they are told.

#include "protocols/openai/answers.hpp"
#include "protocols/openai/prompts.hpp"
#include "protocols/openai/requests.hpp"
#include "protocols/openai/stop_texts.hpp"
#include "protocols/tokenizer/tokenizer_file.hpp"
#include "tests/support/names.hpp"
#include "tests/support/small_tokenizer.hpp"

#include <optional>
#include <random>

namespace parcae {
namespace {

namespace json = boost::json;

/// What is refused, if it is.
template <class Function>
std::optional<openai_error> refused(Function f) {
  try {
    f();
  } catch (const openai_error& e) {
    return e;
  }
  return std::nullopt;
}

generation_request completion(const std::string& more) {
  return parse_generation(openai_call::completion, R"({"model": "m", "prompt": "hi")" + more + "}");
}

generation_request chat(const std::string& more) {
  return parse_generation(openai_call::chat,
                          R"({"model": "m", "messages": [{"role": "user", "content": "hi"}])" + more + "}");
}

// given: each field / expected: its value
TEST(openai_request, fields) {
  const auto x = completion(R"(, "max_tokens": 7, "temperature": 0, "top_p": 0.5, "top_k": 40, "seed": -3,
    "stop": ["\n", "###"], "stream": true, "stream_options": {"include_usage": true}, "token_ids": true)");
  EXPECT_EQ(x.call, openai_call::completion);
  EXPECT_EQ(x.model, "m");
  EXPECT_THAT(x.prompts, ElementsAre(text_or_tokens("hi")));
  EXPECT_EQ(x.max_tokens, 7u);
  EXPECT_EQ(x.sampling.temperature, 0);
  EXPECT_EQ(x.sampling.top_p, 0.5);
  EXPECT_EQ(x.sampling.top_k, 40u);
  EXPECT_EQ(x.sampling.seed, -3);
  EXPECT_THAT(x.stops, ElementsAre("\n", "###"));
  EXPECT_TRUE(x.stream && x.with_usage && x.with_token_ids);
}

// given: nothing but what must be there, and fields that are null / expected: OpenAI's defaults
TEST(openai_request, defaults) {
  for (const std::string more :
       {"", R"(, "max_tokens": null, "temperature": null, "stop": null, "n": null, "user": null)"}) {
    const auto x = completion(more);
    EXPECT_FALSE(x.max_tokens || x.sampling.seed || x.stream || x.with_usage || x.with_token_ids);
    EXPECT_EQ(x.sampling.temperature, 1);
    EXPECT_EQ(x.sampling.top_p, 1);
    EXPECT_EQ(x.sampling.top_k, 0u);
    EXPECT_THAT(x.stops, IsEmpty());
  }
}

// given: prompts in each form / expected: one for each answer
TEST(openai_request, prompts) {
  const auto prompts = [](const std::string& x) {
    return parse_generation(openai_call::completion, R"({"model": "m", "prompt": )" + x + "}").prompts;
  };
  using tokens = std::vector<token_id>;
  EXPECT_THAT(prompts(R"(["a", "b"])"), ElementsAre(text_or_tokens("a"), text_or_tokens("b")));
  EXPECT_THAT(prompts("[1, 2]"), ElementsAre(text_or_tokens(tokens{1, 2})));
  EXPECT_THAT(prompts(R"([[1], [2, 3], "c"])"),
              ElementsAre(text_or_tokens(tokens{1}), text_or_tokens(tokens{2, 3}), text_or_tokens("c")));
}

// given: a chat, as clients send it, an answer of before among it / expected: who said what
TEST(openai_request, chats) {
  const auto x = parse_generation(openai_call::chat, R"({"model": "m", "max_completion_tokens": 5, "messages": [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": "c", "refusal": null, "tool_calls": [], "annotations": []},
    {"content": "", "role": "user"}]})");
  EXPECT_EQ(x.call, openai_call::chat);
  EXPECT_EQ(x.max_tokens, 5u);
  std::vector<std::pair<chat_role, std::string>> said;
  for (const auto& y : x.messages)
    said.emplace_back(y.role, y.text);
  EXPECT_THAT(said, ElementsAre(Pair(chat_role::system, "s"), Pair(chat_role::user, "ab"),
                                Pair(chat_role::assistant, "c"), Pair(chat_role::user, "")));
}

// given: fields that are not supported, with the values that change nothing / expected: taken
TEST(openai_request, what_changes_nothing_is_taken) {
  const auto x = chat(R"(, "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0, "logprobs": false, "logit_bias": {},
    "response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "user": "u", "metadata": {"a": "b"},
    "store": true, "parallel_tool_calls": true, "top_logprobs": 0, "top_k": -1, "service_tier": "auto")");
  EXPECT_EQ(x.sampling.top_k, 0u);
  completion(R"(, "best_of": 1, "echo": false, "suffix": "", "repetition_penalty": 1.0, "min_p": 0)");
}

// given: fields that would change the answer, or are wrong / expected: 400, the field, and what would be right
TEST(openai_request, what_is_wrong_is_named) {
  const std::tuple<std::string, std::string, std::string> table[] = {
      {R"("n": 2)", "n", "n is not supported here: it must be 1, or left out"},
      {R"("logprobs": 5)", "logprobs", "logprobs is not supported here: it must be false, or left out"},
      {R"("logprobs": 0)", "logprobs", "logprobs is not supported"},
      {R"("presence_penalty": 0.1)", "presence_penalty", "presence_penalty is not supported here: it must be 0"},
      {R"("response_format": {"type": "json_object"})", "response_format",
       R"(response_format is not supported here: it must be {"type":"text"}, or left out)"},
      {R"("tools": [{}])", "tools", "tools is not supported here: it must be [], or left out"},
      {R"("function_call": {"name": "f"})", "function_call", R"(it must be "none" or "auto", or left out)"},
      {R"("logit_bias": {"1": 2})", "logit_bias", "logit_bias is not supported"},
      {R"("best_of": 2)", "best_of", "best_of is not supported"},
      {R"("echo": true)", "echo", "echo is not supported"},
      {R"("suffix": "x")", "suffix", "suffix is not supported"},
      {R"("temprature": 1)", "temprature", R"("temprature" is not known; did you mean "temperature"?)"},
      {R"("whatever\n": 1)", "whatever ", "is not known"},
      {R"("messages": [])", "messages", R"("messages" is not known)"},
      {R"("temperature": 2.1)", "temperature", "temperature must be a number from 0 to 2"},
      {R"("temperature": "hot")", "temperature", "temperature must be a number from 0 to 2"},
      {R"("top_p": 0)", "top_p", "top_p must be more than 0"},
      {R"("top_p": 1.01)", "top_p", "top_p must be a number from 0 to 1"},
      {R"("top_k": 1.5)", "top_k", "top_k must be a whole number from -1 to 1000000"},
      {R"("max_tokens": 0)", "max_tokens", "max_tokens must be a whole number from 1 to 1000000"},
      {R"("max_tokens": 1e30)", "max_tokens", "max_tokens must be a whole number"},
      {R"("seed": 9223372036854775808)", "seed", "seed must be a whole number"},
      {R"("seed": "1")", "seed", "seed must be a whole number"},
      {R"("stop": [""])", "stop", "stop must have 1 to 256 bytes"},
      {R"("stop": ["a", "b", "c", "d", "e"])", "stop", "stop must be up to 4 texts"},
      {R"("stop": 1)", "stop", "stop must be text"},
      {R"("stream": "yes")", "stream", "stream must be true or false"},
      {R"("stream_options": {"x": 1})", "stream_options.x", "stream_options.x is not known: known is include_usage"},
      {R"("stream_options": true)", "stream_options", "stream_options must be an object"},
      {R"("token_ids": 1)", "token_ids", "token_ids must be true or false"},
      {R"("model": 1)", "model", "model must be text"},
  };
  for (const auto& [more, field, why] : table) {
    SCOPED_TRACE(more);
    const auto e = refused([&] { completion(", " + more); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->status, 400u);
    EXPECT_EQ(e->field, field);
    EXPECT_THAT(e->what(), HasSubstr(why));
  }
}

// given: bodies that are wrong as a whole, prompts and messages / expected: likewise
TEST(openai_request, bodies_that_are_wrong) {
  const auto deep = std::string(100, '[') + std::string(100, ']');
  const std::tuple<openai_call, std::string, std::string> table[] = {
      {openai_call::completion, "", "the body is no JSON: "},
      {openai_call::completion, "{", "the body is no JSON: "},
      {openai_call::completion, R"({"model": "\ud800"})", "the body is no JSON: "},
      {openai_call::completion, "{\"model\": \"\xFF\"}", "the body is no JSON: "},
      {openai_call::completion, R"({"user": )" + deep + "}", "the body is no JSON: "},
      {openai_call::completion, "[]", "the body must be an object"},
      {openai_call::completion, R"({"prompt": "x"})", "model must be there"},
      {openai_call::completion, R"({"model": "m"})", "prompt must be there"},
      {openai_call::completion, R"({"model": "m", "prompt": []})", "prompt must be text, a list of texts"},
      {openai_call::completion, R"({"model": "m", "prompt": {}})", "prompt must be text, a list of texts"},
      {openai_call::completion, R"({"model": "m", "prompt": ["a", 1]})", "prompt[1] must be text"},
      {openai_call::completion, R"({"model": "m", "prompt": [1, -1]})", "prompt[1] must be a whole number from 0"},
      {openai_call::completion,
       R"({"model": "m", "prompt": [)" +
           [] {
             std::string x = "\"a\"";
             for (int i = 0; i < 64; ++i)
               x += ",\"a\"";
             return x;
           }() +
           "]}",
       "prompt has more than 64 prompts"},
      {openai_call::chat, R"({"model": "m", "prompt": "x"})", R"("prompt" is not known)"},
      {openai_call::chat, R"({"model": "m"})", "messages must be there, one at least"},
      {openai_call::chat, R"({"model": "m", "messages": []})", "messages must be there, one at least"},
      {openai_call::chat, R"({"model": "m", "messages": "x"})", "messages must be a list of up to 1024"},
      {openai_call::chat, R"({"model": "m", "messages": ["x"]})", "messages[0] must be an object"},
      {openai_call::chat, R"({"model": "m", "messages": [{"role": "user"}]})",
       "messages[0] must have role and content"},
      {openai_call::chat, R"({"model": "m", "messages": [{"role": "tool", "content": "x"}]})",
       "messages[0].role must be system, user or assistant"},
      {openai_call::chat, R"({"model": "m", "messages": [{"role": "user", "content": null}]})",
       "messages[0].content must be text"},
      {openai_call::chat, R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content must be text, or a list of"},
      {openai_call::chat, R"({"model": "m", "messages": [{"role": "user", "content": "x", "name": "bob"}]})",
       "messages[0].name is not known"},
      {openai_call::chat, R"({"model": "m", "max_tokens": 1, "max_completion_tokens": 2, "messages": []})",
       "max_completion_tokens is another than"},
  };
  for (const auto& [call, body, why] : table) {
    SCOPED_TRACE(body);
    const auto e = refused([call = call, &body = body] { parse_generation(call, body); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->status, 400u);
    EXPECT_THAT(e->what(), HasSubstr(why));
  }
}

struct openai_prompts : testing::Test {
  const tokenizer small = parse_tokenizer(json::serialize(small_tokenizer()), "small");
  const chat_writer chatml{chat_form::chatml, small};
  served_model model{"m", &small, &chatml, 32, 263};
};

// given: prompts as text, tokens and chats / expected: their tokens, and how long answers may be
TEST_F(openai_prompts, tokens_and_lengths) {
  const auto one = [&](const generation_request& x) { return prompts_for(model, x).at(0); };
  EXPECT_THAT(one(completion("")).tokens, ElementsAre('h', 'i'));
  EXPECT_EQ(one(completion("")).max_tokens, 16u);
  EXPECT_EQ(one(completion(R"(, "max_tokens": 30)")).max_tokens, 30u);
  const auto talk = one(chat(""));
  EXPECT_EQ(talk.tokens, chatml.prompt_of({{chat_role::user, "hi"}}));
  EXPECT_EQ(talk.max_tokens, 32 - talk.tokens.size());
  const auto both =
      prompts_for(model, parse_generation(openai_call::completion, R"({"model": "m", "prompt": ["a", [258, 1]]})"));
  ASSERT_EQ(both.size(), 2u);
  EXPECT_THAT(both[1].tokens, ElementsAre(258, 1));
}

// given: what the model has not / expected: 404 or 400, the field, and what would be right
TEST_F(openai_prompts, what_the_model_has_not) {
  const auto ask = [&](const generation_request& x) { return refused([&] { prompts_for(model, x); }); };
  const auto expect = [](const std::optional<openai_error>& e, unsigned status, const std::string& field,
                         const std::string& line) {
    ASSERT_TRUE(e);
    EXPECT_EQ(e->status, status);
    EXPECT_EQ(e->field, field);
    EXPECT_THAT(e->what(), StartsWith(line));
  };
  auto other = completion("");
  other.model = "gpt-4";
  expect(ask(other), 404, "model", "model gpt-4 is not served; m is");
  EXPECT_EQ(ask(other)->code, "model_not_found");
  const auto too_long = ask(completion(R"(, "max_tokens": 31)"));
  expect(too_long, 400, "max_tokens",
         "max_tokens leads beyond the context of 32 tokens: the prompt has 2, the answer up to 31");
  EXPECT_EQ(too_long->code, "context_length_exceeded");
  auto long_prompt = completion("");
  long_prompt.prompts = {std::vector<token_id>(40, 1)};
  expect(ask(long_prompt), 400, "prompt",
         "prompt leads beyond the context of 32 tokens: the prompt has 40, the answer up to 16");
  auto long_chat = chat("");
  long_chat.messages[0].text = std::string(40, 'x');
  expect(ask(long_chat), 400, "messages", "messages leads beyond the context");
  auto beyond = completion("");
  beyond.prompts = {std::vector<token_id>{1, 263}};
  expect(ask(beyond), 400, "prompt", "prompt has token 263; tokens are below 263");
  auto empty = completion("");
  empty.prompts = {""};
  expect(ask(empty), 400, "prompt", "prompt is empty");
  auto large = completion("");
  large.prompts = {std::string(max_text_bytes + 1, 'x')};
  expect(ask(large), 400, "prompt", "a text has at most 1 MiB");
  model.chats = nullptr;
  expect(ask(chat("")), 400, "messages", "messages have no form with this model");
  model.text = nullptr;
  expect(ask(completion("")), 400, "prompt", "prompt must be a list of tokens: this model has no tokenizer");
  auto stopped = beyond;
  stopped.stops = {"x"};
  expect(ask(stopped), 400, "stop", "stop must be left out: this model has no tokenizer");
}

const answer_head text_head{openai_call::completion, "cmpl-7", 1700000000, "m", 42};
const answer_head chat_head{openai_call::chat, "chatcmpl-7", 1700000000, "m", 42};

// given: answers / expected: OpenAI's bodies
TEST(openai_answer, bodies) {
  const auto text = json::parse(answer_body(
      text_head, {{0, "a\n", std::vector<token_id>{97, 10}, finish_reason::length}, {1, "b", {}, finish_reason::stop}},
      {3, 5}));
  EXPECT_EQ(text, json::parse(
                      R"({"id": "cmpl-7", "object": "text_completion", "created": 1700000000, "model": "m", "seed": 42,
    "choices": [{"index": 0, "text": "a\n", "logprobs": null, "finish_reason": "length", "token_ids": [97, 10]},
                {"index": 1, "text": "b", "logprobs": null, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}})"));
  const auto talk = json::parse(answer_body(chat_head, {{0, "hi", {}, finish_reason::stop}}, {3, 1}));
  EXPECT_EQ(
      talk,
      json::parse(R"({"id": "chatcmpl-7", "object": "chat.completion", "created": 1700000000, "model": "m", "seed": 42,
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "logprobs": null, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}})"));
  EXPECT_EQ(json::parse(models_body("m", 5)),
            json::parse(
                R"({"object": "list", "data": [{"id": "m", "object": "model", "created": 5, "owned_by": "parcae"}]})"));
}

// given: what is told of a stream / expected: one event each, with its empty line
TEST(openai_answer, events) {
  const auto of = [](const std::string& event) {
    EXPECT_THAT(event, AllOf(StartsWith("data: "), EndsWith("\n\n")));
    EXPECT_EQ(event.find('\n'), event.size() - 2);
    return json::parse(event.substr(6));
  };
  const std::string about = R"("created": 1700000000, "model": "m", "seed": 42, )";
  const auto text = [&](const std::string& choices) {
    return json::parse(R"({"id": "cmpl-7", "object": "text_completion", )" + about + R"("choices": )" + choices + "}");
  };
  const auto talk = [&](const std::string& choices) {
    return json::parse(R"({"id": "chatcmpl-7", "object": "chat.completion.chunk", )" + about + R"("choices": )" +
                       choices + "}");
  };
  EXPECT_EQ(of(piece_event(text_head, {1, "a\r\n\n", {}, {}})),
            text(R"([{"index": 1, "text": "a\r\n\n", "logprobs": null, "finish_reason": null}])"));
  EXPECT_EQ(
      of(speaker_event(chat_head, 0)),
      talk(
          R"([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}])"));
  EXPECT_EQ(
      of(piece_event(chat_head, {0, "é", std::vector<token_id>{7}, {}})),
      talk(R"([{"index": 0, "delta": {"content": "é"}, "logprobs": null, "finish_reason": null, "token_ids": [7]}])"));
  EXPECT_EQ(of(piece_event(chat_head, {0, "", {}, finish_reason::stop})),
            talk(R"([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop"}])"));
  const auto counts = of(counts_event(chat_head, {3, 4}));
  EXPECT_EQ(counts.at("usage").at("total_tokens"), json::value(7));
  EXPECT_EQ(counts.at("choices"), json::value(json::array()));
  EXPECT_EQ(of(error_event({503, "no"})), json::parse(error_body({503, "no"})));
}

// given: errors / expected: OpenAI's shape
TEST(openai_answer, errors) {
  const std::tuple<openai_error, std::string> table[] = {
      {{400, "n is wrong", "n"},
       R"({"message": "n is wrong", "type": "invalid_request_error", "param": "n", "code": null})"},
      {{401, "no", "", "invalid_api_key"},
       R"({"message": "no", "type": "authentication_error", "param": null, "code": "invalid_api_key"})"},
      {{429, "full"}, R"({"message": "full", "type": "rate_limit_error", "param": null, "code": null})"},
      {{503, "away"}, R"({"message": "away", "type": "server_error", "param": null, "code": null})"},
  };
  for (const auto& [error, body] : table)
    EXPECT_EQ(json::parse(error_body(error)).at("error"), json::parse(body));
}

// given: texts in pieces, and stops / expected: what is before the stop that is complete first, as soon as it is known
TEST(stop_texts, end_an_answer) {
  const auto said = [](const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
    stop_texts x(stops);
    std::vector<std::string> result;
    for (const auto& piece : pieces)
      result.push_back(x.add(piece));
    result.push_back(x.end() + (x.found() ? "!" : ""));
    return result;
  };
  EXPECT_THAT(said({}, {"a", "b"}), ElementsAre("a", "b", ""));
  EXPECT_THAT(said({"###"}, {"a#", "#b", "##"}), ElementsAre("a", "##b", "", "##"));
  EXPECT_THAT(said({"###"}, {"a#", "##b", "c"}), ElementsAre("a", "", "", "!"));
  EXPECT_THAT(said({"abc", "b"}, {"abc"}), ElementsAre("a", "!"));
  EXPECT_THAT(said({"b", "ab"}, {"ab"}), ElementsAre("", "!"));
  EXPECT_THAT(said({"aab"}, {"aaa", "ab"}), ElementsAre("a", "a", "!"));
}

// given: drawn texts of two letters, in drawn pieces / expected: as letter by letter, and as all that is known says
TEST(stop_texts, pieces_do_not_matter) {
  std::mt19937 random(1);
  const auto word = [&](std::size_t most) {
    std::string result(1 + random() % most, 'a');
    for (auto& x : result)
      x = random() % 2 ? 'a' : 'b';
    return result;
  };
  int stopped = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::vector<std::string> stops{word(6), word(4) + word(4)};
    const auto text = word(20);
    auto wanted = text;
    for (std::size_t end = 1; end <= text.size() && wanted == text; ++end) {
      std::size_t longest = 0;
      for (const auto& stop : stops)
        if (text.substr(0, end).ends_with(stop))
          longest = std::max(longest, stop.size());
      if (longest > 0)
        wanted = text.substr(0, end - longest);
    }
    stop_texts x(stops);
    std::string got;
    for (std::size_t at = 0; at < text.size();) {
      const auto size = 1 + random() % 4;
      got += x.add(text.substr(at, size));
      at += size;
    }
    got += x.end();
    ASSERT_EQ(got, wanted) << text << " until " << stops[0] << " or " << stops[1];
    stopped += x.found();
  }
  EXPECT_GT(stopped, 1000);
  EXPECT_LT(stopped, 4900);
}

} // namespace
} // namespace parcae
