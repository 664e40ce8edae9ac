#pragma once

// One request of a client, while it is answered: tokens become text, whole or piece by piece.

#include "gpu/gateway/gateway.hpp"
#include "protocols/http/http_service.hpp"
#include "protocols/openai/answers.hpp"
#include "protocols/openai/stop_texts.hpp"
#include "protocols/tokenizer/utf8.hpp"
#include "runtime/gateway/model_face.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

openai_error error_of_full_queue();

/// On the service's thread; what the gateway tells is posted there. Whoever destroys it has its requests cancelled.
class answering : public std::enable_shared_from_this<answering> {
public:
  answering(gateway& from, std::shared_ptr<const model_face> face, generation_request request, answer_head head,
            boost::asio::any_io_executor executor);
  ~answering();
  answering(const answering&) = delete;

  /// Gives its prompts to the gateway. Throws openai_error: as prompts_for, or 429 if the queue is full.
  void begin();

  // `has_left` is asked each second: of a client that has left the requests end, and openai_error is for nobody.

  /// Until its first token is there, or it is over. Throws openai_error: it is over without one.
  boost::asio::awaitable<void> wait_for_first(const std::function<bool()>& has_left);
  /// All of it. Throws openai_error.
  boost::asio::awaitable<std::string> whole(const std::function<bool()>& has_left);
  /// The gateway goes: it is not called any more.
  void leave();
  /// What is there, and what comes, as events. Once, after wait_for_first(). The stream keeps this alive.
  std::shared_ptr<http_stream> stream();

private:
  class ear;
  /// To one prompt.
  struct answer {
    explicit answer(std::vector<std::string> stops) : stop(std::move(stops)) {}

    std::uint64_t id = 0; ///< at the gateway; 0: it is over there
    std::uint64_t prompt = 0;
    utf8_stream bytes{};
    stop_texts stop;
    std::string text{};
    std::vector<token_id> tokens{};
    std::optional<finish_reason> finish{};
  };

  void hear_token(std::uint32_t index, token_id token);
  void hear_end(std::uint32_t index, request_end why);
  void add(std::uint32_t index, std::string text, std::vector<token_id> tokens);
  void finish(std::uint32_t index, finish_reason why);
  void fail(openai_error why);
  bool is_over() const;
  boost::asio::awaitable<void> wait_for_news(const std::function<bool()>& has_left);
  void say(std::string event);
  void end_stream();
  token_counts counts() const;

  gateway& from_;
  const std::shared_ptr<const model_face> face_;
  const generation_request request_;
  const answer_head head_;
  const boost::asio::any_io_executor executor_;
  boost::asio::steady_timer bell_;
  std::deque<answer> answers_; ///< by prompt
  bool has_token_ = false;
  std::optional<openai_error> failure_;
  std::weak_ptr<http_stream> stream_;
  std::vector<http_stream::piece> before_; ///< events that were there before the stream
};

} // namespace parcae
