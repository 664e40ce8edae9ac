#include "protocols/openai/requests.hpp"

#include "protocols/base/enum_text.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/suggestion.hpp"
#include "protocols/base/text.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <map>

namespace parcae {

namespace json = boost::json;

namespace {

constexpr std::size_t max_prompts = 64, max_messages = 1024, max_stops = 4, max_stop_bytes = 256;
constexpr std::int64_t max_count = 1'000'000; // of tokens

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw openai_error(400, field + " " + why, field);
}

std::string_view text_of(const json::value& x, const std::string& field) {
  if (!x.is_string())
    refuse(field, "must be text");
  return {x.get_string().data(), x.get_string().size()};
}

bool flag_of(const json::value& x, const std::string& field) {
  if (!x.is_bool())
    refuse(field, "must be true or false");
  return x.get_bool();
}

std::int64_t whole_of(const json::value& x, const std::string& field, std::int64_t least, std::int64_t most) {
  boost::system::error_code bad = json::error::not_number;
  const auto result = x.is_number() ? x.to_number<std::int64_t>(bad) : 0;
  if (bad || result < least || result > most)
    refuse(field, "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return result;
}

double number_of(const json::value& x, const std::string& field, double least, double most) {
  const auto result = x.is_number() ? x.to_number<double>() : least - 1;
  if (!(result >= least && result <= most))
    refuse(field, "must be a number from " + text_of_quantity(least) + " to " + text_of_quantity(most));
  return result;
}

/// Fields that are not known, with the values of which they change nothing.
struct neutral_field {
  std::string_view name;
  std::vector<json::value> values;
};

const std::vector<neutral_field>& neutral_fields() {
  static const std::vector<neutral_field> result{
      {"n", {1}},
      {"best_of", {1}},
      {"echo", {false}},
      {"suffix", {""}},
      {"logprobs", {false}},
      {"top_logprobs", {0}},
      {"presence_penalty", {0}},
      {"frequency_penalty", {0}},
      {"repetition_penalty", {1}},
      {"min_p", {0}},
      {"min_tokens", {0}},
      {"ignore_eos", {false}},
      {"logit_bias", {json::object()}},
      {"response_format", {json::object{{"type", "text"}}}},
      {"tools", {json::array()}},
      {"tool_choice", {"none", "auto"}},
      {"functions", {json::array()}},
      {"function_call", {"none", "auto"}},
      {"modalities", {json::array{"text"}}},
  };
  return result;
}

/// These say nothing about the answer.
constexpr std::string_view ignored_fields[] = {
    "user", "metadata", "store", "parallel_tool_calls", "service_tier", "safety_identifier", "prompt_cache_key"};

bool same(const json::value& a, const json::value& b) {
  return a == b || (a.is_number() && b.is_number() && a.to_number<double>() == b.to_number<double>());
}

void check_neutral(const neutral_field& field, const json::value& x) {
  if (std::ranges::any_of(field.values, [&](const auto& y) { return same(x, y); }))
    return;
  std::string known;
  for (const auto& y : field.values)
    known += (known.empty() ? "" : " or ") + json::serialize(y);
  refuse(std::string(field.name), "is not supported here: it must be " + known + ", or left out");
}

std::vector<token_id> tokens_of(const json::array& x, const std::string& field) {
  std::vector<token_id> result;
  for (const auto& token : x)
    result.push_back(static_cast<token_id>(
        whole_of(token, field + "[" + std::to_string(result.size()) + "]", 0, std::int64_t{UINT32_MAX} - 1)));
  return result;
}

/// A text, texts, tokens, or lists of tokens.
std::vector<text_or_tokens> prompts_of(const json::value& x, const std::string& field) {
  if (x.is_string())
    return {std::string(text_of(x, field))};
  if (!x.is_array() || x.get_array().empty())
    refuse(field, "must be text, a list of texts, tokens, or a list of lists of tokens");
  const auto& list = x.get_array();
  if (list.front().is_number())
    return {tokens_of(list, field)};
  if (list.size() > max_prompts)
    refuse(field, "has more than " + std::to_string(max_prompts) + " prompts");
  std::vector<text_or_tokens> result;
  for (const auto& one : list) {
    const auto name = field + "[" + std::to_string(result.size()) + "]";
    if (one.is_array())
      result.emplace_back(tokens_of(one.get_array(), name));
    else
      result.emplace_back(std::string(text_of(one, name)));
  }
  return result;
}

/// Text, or parts of the type text.
std::string content_of(const json::value& x, const std::string& field) {
  if (!x.is_array())
    return std::string(text_of(x, field));
  std::string result;
  for (const auto& part : x.get_array()) {
    const auto* const object = part.if_object();
    const auto* const type = object ? object->if_contains("type") : nullptr;
    const auto* const text = object ? object->if_contains("text") : nullptr;
    if (!type || *type != json::value("text") || !text)
      refuse(field, R"(must be text, or a list of {"type": "text", "text": "..."})");
    result += text_of(*text, field);
  }
  return result;
}

chat_message message_of(const json::value& x, const std::string& field) {
  if (!x.is_object())
    refuse(field, "must be an object with role and content");
  chat_message result;
  bool has_role = false, has_content = false;
  for (const auto& [key, value] : x.get_object()) {
    const auto name = field + "." + printable({key.data(), key.size()}, 60);
    if (key == "role") {
      const auto role = parse_enum<chat_role>(text_of(value, name));
      if (!role)
        refuse(name, "must be system, user or assistant");
      result.role = *role;
      has_role = true;
    } else if (key == "content") {
      result.text = content_of(value, name);
      has_content = true;
    } else if (!value.is_null() && value != json::value(json::array())) {
      refuse(name, "is not known: a message has role and content");
    }
  }
  if (!has_role || !has_content)
    refuse(field, "must have role and content");
  return result;
}

void set_max_tokens(generation_request& to, const json::value& x, const std::string& field) {
  const auto count = static_cast<std::uint32_t>(whole_of(x, field, 1, max_count));
  if (to.max_tokens && to.max_tokens != count)
    refuse(field, "is another than what is said before it");
  to.max_tokens = count;
}

void set_stops(generation_request& to, const json::value& x, const std::string& field) {
  const auto add = [&](const json::value& one) {
    const auto text = text_of(one, field);
    if (text.empty() || text.size() > max_stop_bytes)
      refuse(field, "must have 1 to " + std::to_string(max_stop_bytes) + " bytes");
    to.stops.emplace_back(text);
  };
  if (!x.is_array())
    return add(x);
  if (x.get_array().size() > max_stops)
    refuse(field, "must be up to " + std::to_string(max_stops) + " texts");
  std::ranges::for_each(x.get_array(), add);
}

void set_messages(generation_request& to, const json::value& x, const std::string& field) {
  if (!x.is_array() || x.get_array().size() > max_messages)
    refuse(field, "must be a list of up to " + std::to_string(max_messages) + " messages");
  for (const auto& one : x.get_array())
    to.messages.push_back(message_of(one, field + "[" + std::to_string(to.messages.size()) + "]"));
}

void set_stream_options(generation_request& to, const json::value& x, const std::string& field) {
  if (!x.is_object())
    refuse(field, "must be an object");
  for (const auto& [key, value] : x.get_object())
    if (key == "include_usage")
      to.with_usage = flag_of(value, field + ".include_usage");
    else if (key != "include_obfuscation") // of the lengths of pieces: none is promised
      refuse(field + "." + printable({key.data(), key.size()}, 60), "is not known: known is include_usage");
}

using field_reader = void (*)(generation_request&, const json::value&, const std::string& field);
using field_readers = std::map<std::string_view, field_reader>;

const field_readers& fields_of_both() {
  using request = generation_request;
  using text = const std::string;
  using value = const json::value;
  static const field_readers result{
      {"model", [](request& to, value& x, text& field) { to.model = text_of(x, field); }},
      {"max_tokens", set_max_tokens},
      {"temperature", [](request& to, value& x, text& field) { to.sampling.temperature = number_of(x, field, 0, 2); }},
      {"top_p",
       [](request& to, value& x, text& field) {
         to.sampling.top_p = number_of(x, field, 0, 1);
         if (to.sampling.top_p == 0)
           refuse(field, "must be more than 0; for the likeliest token, temperature is 0");
       }},
      {"top_k", // -1, which some clients say, is all of them, too
       [](request& to, value& x, text& field) {
         to.sampling.top_k = static_cast<std::uint32_t>(std::max<std::int64_t>(0, whole_of(x, field, -1, max_count)));
       }},
      {"seed", [](request& to, value& x, text& field) { to.sampling.seed = whole_of(x, field, INT64_MIN, INT64_MAX); }},
      {"stop", set_stops},
      {"stream", [](request& to, value& x, text& field) { to.stream = flag_of(x, field); }},
      {"stream_options", set_stream_options},
      {"token_ids", [](request& to, value& x, text& field) { to.with_token_ids = flag_of(x, field); }},
  };
  return result;
}

const field_readers& fields_of(openai_call call) {
  static const field_readers completion{
      {"prompt", [](auto& to, const auto& x, const auto& field) { to.prompts = prompts_of(x, field); }}};
  static const field_readers chat{{"messages", set_messages}, {"max_completion_tokens", set_max_tokens}};
  return call == openai_call::chat ? chat : completion;
}

void read_field(generation_request& to, const std::string& name, const json::value& x) {
  std::vector<std::string_view> known(std::begin(ignored_fields), std::end(ignored_fields));
  for (const auto* fields : {&fields_of_both(), &fields_of(to.call)})
    for (const auto& [field, read] : *fields) {
      if (field == name)
        return x.is_null() ? void() : read(to, x, name);
      known.push_back(field);
    }
  for (const auto& field : neutral_fields()) {
    if (field.name == name)
      return x.is_null() ? void() : check_neutral(field, x);
    known.push_back(field.name);
  }
  if (std::ranges::find(ignored_fields, name) == std::end(ignored_fields)) {
    const auto meant = suggestion(name, known);
    throw openai_error(400, '"' + printable(name, 60) + "\" is not known" + (meant.empty() ? "" : "; " + meant),
                       printable(name, 60));
  }
}

} // namespace

generation_request parse_generation(openai_call call, std::string_view body) {
  boost::system::error_code bad;
  const auto parsed = json::parse({body.data(), body.size()}, bad);
  if (bad)
    throw openai_error(400, "the body is no JSON: " + bad.message());
  if (!parsed.is_object())
    throw openai_error(400, "the body must be an object, such as {\"model\": \"...\", ...}");
  generation_request result;
  result.call = call;
  for (const auto& [key, value] : parsed.get_object())
    read_field(result, key, value);
  if (result.model.empty())
    refuse("model", "must be there");
  if (call == openai_call::chat && result.messages.empty())
    refuse("messages", "must be there, one at least");
  if (call == openai_call::completion && result.prompts.empty())
    refuse("prompt", "must be there");
  return result;
}

} // namespace parcae
