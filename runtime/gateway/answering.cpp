#include "runtime/gateway/answering.hpp"

#include "protocols/base/as_result.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace parcae {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds look_pause{1}; ///< between two looks whether the client is there
constexpr std::size_t behind_bytes = 1 << 20; ///< that a reader may be behind

openai_error error_of(request_end why) {
  switch (why) {
  case request_end::unserved:
    return {503, "no instance has taken the request in time; try again later", {}, "overloaded"};
  case request_end::not_finite:
    return {500, "the model gives no finite numbers for this request", {}, "not_finite"};
  case request_end::threw:
    return {500, "the model could not compute this request, twice", {}, "not_computed"};
  default:
    return {503, "the service ends; try again later", {}, "closed"};
  }
}

} // namespace

openai_error error_of_full_queue() {
  return {429, "too many requests wait; try again later", {}, "overloaded"};
}

/// What the gateway tells, posted to the service's thread: it may come when the request is not there any more.
class answering::ear final : public request_listener {
public:
  ear(const std::shared_ptr<answering>& to, std::uint32_t index) : executor_(to->executor_), to_(to), index_(index) {}

  void on_token(std::uint32_t token) override {
    asio::post(executor_, [to = to_, index = index_, token] {
      if (const auto x = to.lock())
        x->hear_token(index, token);
    });
  }
  void on_end(request_end why) override {
    asio::post(executor_, [to = to_, index = index_, why] {
      if (const auto x = to.lock())
        x->hear_end(index, why);
    });
  }

private:
  const asio::any_io_executor executor_;
  const std::weak_ptr<answering> to_;
  const std::uint32_t index_;
};

answering::answering(gateway& from, std::shared_ptr<const model_face> face, generation_request request,
                     answer_head head, asio::any_io_executor executor) :
    from_(from),
    face_(std::move(face)), request_(std::move(request)), head_(std::move(head)), executor_(executor), bell_(executor) {
}

answering::~answering() {
  for (const auto& x : answers_)
    if (x.id != 0)
      from_.cancel(x.id);
}

void answering::begin() {
  auto stops = request_.stops;
  if (request_.call == openai_call::chat && face_->chats())
    std::ranges::copy(face_->chats()->stops(), std::back_inserter(stops));
  for (auto& prompt : prompts_for(face_->model(), request_)) {
    const auto index = static_cast<std::uint32_t>(answers_.size());
    auto& x = answers_.emplace_back(stops);
    x.prompt = prompt.tokens.size();
    // Prompts of one request are asked with the same seed: alike ones have the same answer.
    const auto& how = request_.sampling;
    x.id = from_.begin({std::move(prompt.tokens),
                        prompt.max_tokens,
                        {static_cast<std::uint64_t>(head_.seed), how.temperature, how.top_p, how.top_k}},
                       std::make_shared<ear>(shared_from_this(), index));
    if (x.id == 0)
      throw error_of_full_queue();
  }
}

// --- what comes of the gateway

void answering::hear_token(std::uint32_t index, token_id token) {
  auto& x = answers_[index];
  if (x.finish || failure_)
    return;
  has_token_ = true;
  bell_.cancel();
  const auto* chats = request_.call == openai_call::chat ? face_->chats() : nullptr;
  if (chats && std::ranges::find(chats->ends(), token) != chats->ends().end())
    return finish(index, finish_reason::stop);
  std::string text;
  if (face_->text())
    text = x.stop.add(x.bytes.add(face_->text()->bytes_of(token)));
  add(index, std::move(text), {token});
  if (x.stop.found())
    finish(index, finish_reason::stop);
}

void answering::hear_end(std::uint32_t index, request_end why) {
  auto& x = answers_[index];
  x.id = 0;
  if (x.finish || failure_)
    return;
  if (why == request_end::length || why == request_end::stop)
    finish(index, why == request_end::length ? finish_reason::length : finish_reason::stop);
  else
    fail(error_of(why));
}

void answering::add(std::uint32_t index, std::string text, std::vector<token_id> tokens) {
  auto& x = answers_[index];
  x.tokens.insert(x.tokens.end(), tokens.begin(), tokens.end());
  if (!request_.stream) {
    x.text += text;
    return;
  }
  answer_piece piece{.index = index, .text = std::move(text)};
  const bool tells_tokens = request_.with_token_ids || !face_->text();
  if (tells_tokens)
    piece.tokens = std::move(tokens);
  if (tells_tokens || !piece.text.empty()) // half a character says nothing yet
    say(piece_event(head_, piece));
}

void answering::finish(std::uint32_t index, finish_reason why) {
  auto& x = answers_[index];
  auto rest = why == finish_reason::stop && x.stop.found() ? std::string() : x.stop.add(x.bytes.end()) + x.stop.end();
  x.finish = why;
  if (const auto id = std::exchange(x.id, 0); id != 0)
    from_.cancel(id);
  if (request_.stream)
    say(piece_event(head_, {.index = index, .text = std::move(rest), .finish = why}));
  else
    x.text += rest;
  if (!is_over())
    return;
  bell_.cancel();
  if (request_.stream) {
    if (request_.with_usage)
      say(counts_event(head_, counts()));
    say(std::string(end_event));
    end_stream();
  }
}

void answering::fail(openai_error why) {
  for (auto& x : answers_)
    if (const auto id = std::exchange(x.id, 0); id != 0)
      from_.cancel(id);
  if (request_.stream && has_token_) {
    say(error_event(why));
    end_stream();
  }
  failure_ = std::move(why);
  bell_.cancel();
}

bool answering::is_over() const {
  return std::ranges::all_of(answers_, [](const auto& x) { return x.finish.has_value(); });
}

token_counts answering::counts() const {
  token_counts result;
  for (const auto& x : answers_) {
    result.prompt += x.prompt;
    result.answer += x.tokens.size();
  }
  return result;
}

void answering::leave() {
  for (auto& x : answers_)
    x.id = 0;
  if (!failure_ && !is_over())
    fail(error_of(request_end::closed));
}

// --- what goes to the client

asio::awaitable<void> answering::wait_for_news(const std::function<bool()>& has_left) {
  bell_.expires_after(look_pause);
  const auto [rung] = co_await bell_.async_wait(as_result);
  if (!rung && has_left && has_left())
    fail({499, "the client has closed the connection", {}, "left"});
}

asio::awaitable<void> answering::wait_for_first(const std::function<bool()>& has_left) {
  while (!has_token_ && !failure_ && !is_over())
    co_await wait_for_news(has_left);
  if (failure_ && !has_token_)
    throw openai_error(*failure_);
}

asio::awaitable<std::string> answering::whole(const std::function<bool()>& has_left) {
  while (!failure_ && !is_over())
    co_await wait_for_news(has_left);
  if (failure_)
    throw openai_error(*failure_);
  std::vector<answer_piece> pieces;
  for (std::uint32_t i = 0; i < answers_.size(); ++i) {
    auto& x = answers_[i];
    auto& piece = pieces.emplace_back(answer_piece{.index = i, .text = x.text, .finish = x.finish});
    if (request_.with_token_ids || !face_->text())
      piece.tokens = x.tokens;
  }
  co_return answer_body(head_, pieces, counts());
}

void answering::say(std::string event) {
  auto piece = std::make_shared<const std::string>(std::move(event));
  if (const auto to = stream_.lock())
    to->add(std::move(piece));
  else
    before_.push_back(std::move(piece));
}

void answering::end_stream() {
  if (const auto to = stream_.lock())
    to->end();
}

std::shared_ptr<http_stream> answering::stream() {
  std::vector<http_stream::piece> first;
  if (request_.call == openai_call::chat)
    for (std::uint32_t i = 0; i < answers_.size(); ++i)
      first.push_back(std::make_shared<const std::string>(speaker_event(head_, i)));
  std::ranges::move(std::exchange(before_, {}), std::back_inserter(first));
  auto result = std::make_shared<http_stream>(executor_, std::move(first), behind_bytes, std::string(sign_of_life));
  result->source = shared_from_this();
  stream_ = result;
  if (failure_ || is_over())
    result->end();
  return result;
}

} // namespace parcae
