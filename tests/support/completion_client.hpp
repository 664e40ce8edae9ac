#pragma once

// Asks a gateway for completions, as tokens.

#include "tests/support/web_client.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace parcae {

/// What is asked for. The same has the same answer, always.
struct completion_wish {
  std::string model;
  std::size_t prompt = 1; ///< bytes
  int max_tokens = 1;
  std::int64_t seed = 0;
  double temperature = 1;

  std::string body(bool stream) const {
    return boost::json::serialize(boost::json::object{{"model", model},
                                                      {"prompt", std::string(prompt, 'a')},
                                                      {"max_tokens", max_tokens},
                                                      {"seed", seed},
                                                      {"temperature", temperature},
                                                      {"token_ids", true},
                                                      {"stream", stream}});
  }
};

struct completion {
  unsigned status = 0; ///< 0: the connection ended before the answer did; of a stream 500 for an event that says why
  std::vector<std::int64_t> tokens{};
  std::chrono::milliseconds longest_gap{}; ///< between two that came, of a stream
  std::string problem{};
};

inline void add_tokens(completion& to, const boost::json::value& choice) {
  if (const auto* ids = choice.as_object().if_contains("token_ids"))
    for (const auto& token : ids->as_array())
      to.tokens.push_back(token.to_number<std::int64_t>());
}

inline completion ask_whole(std::uint16_t port, const completion_wish& wish) {
  const auto reply = web_client(port).ask({"POST", "/v1/completions", {}, wish.body(false)});
  completion x{.status = reply.status, .problem = reply.status == 200 ? "" : reply.body};
  if (x.status == 200) {
    const auto body = boost::json::parse(reply.body);
    add_tokens(x, body.at("choices").at(0));
  }
  return x;
}

/// An event's data. True: there are no more.
inline bool take_event(completion& x, const std::string& data) {
  if (data == "[DONE]")
    return true;
  const auto event = boost::json::parse(data);
  if (event.as_object().contains("error")) {
    x.status = 500;
    x.problem = data;
    return true;
  }
  add_tokens(x, event.at("choices").at(0));
  return false;
}

/// `on_token` (may be empty): after each piece.
inline completion ask_stream(std::uint16_t port, const completion_wish& wish,
                             const std::function<void(const completion&)>& on_token = {}) {
  web_client client(port);
  client.send(web_question{"POST", "/v1/completions", {}, wish.body(true)}.text(port));
  completion x;
  std::string text;
  auto last = std::chrono::steady_clock::now();
  for (std::string some; !(some = client.receive_some()).empty();) {
    const auto now = std::chrono::steady_clock::now();
    if (!x.tokens.empty())
      x.longest_gap = std::max(x.longest_gap, std::chrono::duration_cast<std::chrono::milliseconds>(now - last));
    last = now;
    text += some;
    if (x.status == 0 && text.find("\r\n") != text.npos)
      x.status = static_cast<unsigned>(std::stoul(text.substr(std::string("HTTP/1.1 ").size(), 3)));
    if (x.status != 0 && x.status != 200) { // all of it is small
      x.problem = text;
      return x;
    }
    for (std::size_t at; (at = text.find("\n\n")) != text.npos; text.erase(0, at + 2)) {
      const auto begin = text.rfind("data: ", at);
      if (begin != text.npos && take_event(x, text.substr(begin + 6, at - begin - 6)))
        return x;
      if (on_token)
        on_token(x);
    }
  }
  return {.status = 0, .tokens = x.tokens, .longest_gap = x.longest_gap, .problem = "it hung up"};
}

} // namespace parcae
