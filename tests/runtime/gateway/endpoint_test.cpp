// The endpoint before a gateway that the test plays: answers, streams, refusals, clients that go.

#include "runtime/gateway/endpoint.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/files.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace parcae {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Answers with the prompt's tokens, one more than asked before it was ended, unless it is told to wait.
class gateway_double final : public gateway {
public:
  gateway_double() {
    job_specification x;
    x.name = "small";
    x.kind = "serve";
    x.model = {.kind = "gpt", .sequence = 64, .vocabulary = 256};
    x.serve.chat = "plain";
    job_ = std::make_shared<const job_specification>(std::move(x));
  }

  void want_snapshot() override {}
  void obey(gateway_command) override {}
  std::shared_ptr<const job_specification> job() const override {
    const std::lock_guard lock(mutex_);
    return job_;
  }
  bool serves() const override { return true; }

  std::uint64_t begin(request_wish x, std::shared_ptr<request_listener> tells) override {
    const std::lock_guard lock(mutex_);
    if (full)
      return 0;
    requests_[++newest_] = {std::move(x), std::move(tells)};
    return newest_;
  }
  bool turns_away() override {
    turned_away += full_at_once;
    return full_at_once;
  }
  void cancel(std::uint64_t id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.insert(id);
    requests_.erase(id);
  }
  std::size_t requests() const override {
    const std::lock_guard lock(mutex_);
    return requests_.size();
  }
  void note_problem(std::string line) override {
    const std::lock_guard lock(mutex_);
    problem_ = std::move(line);
  }

  // The test's.

  request_wish wish(std::uint64_t id) {
    EXPECT_TRUE(eventually([&] { return knows(id); }));
    const std::lock_guard lock(mutex_);
    return requests_[id].first;
  }
  void tell(std::uint64_t id, const std::string& text) {
    EXPECT_TRUE(eventually([&] { return knows(id); }));
    for (const char x : text)
      if (const auto to = listener(id))
        to->on_token(static_cast<unsigned char>(x));
  }
  void end(std::uint64_t id, request_end why = request_end::length) {
    EXPECT_TRUE(eventually([&] { return knows(id); }));
    const auto to = listener(id);
    {
      const std::lock_guard lock(mutex_);
      requests_.erase(id);
    }
    if (to)
      to->on_end(why);
  }
  bool was_cancelled(std::uint64_t id) {
    return eventually([&] {
      const std::lock_guard lock(mutex_);
      return cancelled_.contains(id);
    });
  }
  void serve(std::shared_ptr<const job_specification> x) {
    const std::lock_guard lock(mutex_);
    job_ = std::move(x);
  }
  std::string problem() {
    const std::lock_guard lock(mutex_);
    return problem_;
  }

  std::atomic<bool> full = false;         ///< as begin() finds it
  std::atomic<bool> full_at_once = false; ///< as everybody may see it
  std::atomic<int> turned_away = 0;

private:
  bool knows(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    return requests_.contains(id);
  }
  std::shared_ptr<request_listener> listener(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto x = requests_.find(id);
    return x == requests_.end() ? nullptr : x->second.second;
  }

  mutable std::mutex mutex_;
  std::shared_ptr<const job_specification> job_;
  std::uint64_t newest_ = 0;
  std::map<std::uint64_t, std::pair<request_wish, std::shared_ptr<request_listener>>> requests_;
  std::set<std::uint64_t> cancelled_;
  std::string problem_;
};

struct endpoint_rig {
  explicit endpoint_rig(api_keys keys = {}) :
      served({boost::asio::ip::address_v4::loopback(), 0}, {}, std::move(keys),
             {.body_bytes = 4096, .short_body_bytes = 1024, .header = std::chrono::milliseconds(300)}) {
    served.ask(front);
  }
  ~endpoint_rig() { served.let_go(front); }

  web_reply ask(const std::string& target, const std::string& body, const std::string& key = {}) {
    web_question x{body.empty() ? "GET" : "POST", target, {}, body};
    if (!key.empty())
      x.headers["Authorization"] = key;
    return web_client(served.port()).ask(x);
  }
  web_reply complete(const std::string& fields) {
    return ask("/v1/completions", R"({"model": "small", )" + fields + "}");
  }

  gateway_double front;
  endpoint served;
};

/// Its error's message, type, param and code.
std::string error_in(const web_reply& x) {
  return json::serialize(json::parse(x.body).at("error"));
}

// given: a prompt as text and one as tokens / expected: the gateway has its tokens, limits and seed; the answer its
// text, counts and seed
TEST(endpoint, answers_whole) {
  endpoint_rig x;
  auto reply = std::async(std::launch::async, [&] {
    return x.complete(R"("prompt": ["ab", [1, 2, 3]], "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 7,
                         "seed": 11, "token_ids": true)");
  });
  const auto first = x.front.wish(1), second = x.front.wish(2);
  EXPECT_THAT(first.prompt, ElementsAre('a', 'b'));
  EXPECT_THAT(second.prompt, ElementsAre(1, 2, 3));
  EXPECT_EQ(first.max_tokens, 5u);
  EXPECT_EQ(first.how, (sampling{11, 0.5, 0.9, 7}));
  x.front.tell(1, "h\xc3\xa9");
  x.front.tell(2, "ok");
  x.front.end(2);
  x.front.end(1, request_end::stop);
  const auto got = reply.get();
  EXPECT_EQ(got.status, 200u);
  const auto answer = json::parse(got.body);
  EXPECT_EQ(answer.at("choices").at(0).at("text"), "h\xc3\xa9");
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(answer.at("choices").at(1).at("finish_reason"), "length");
  EXPECT_EQ(answer.at("choices").at(1).at("token_ids"), (json::array{'o', 'k'}));
  EXPECT_EQ(answer.at("seed"), 11);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 5);
  EXPECT_EQ(answer.at("usage").at("completion_tokens"), 5);
}

// given: a text that ends answers, in two pieces / expected: the text before it, and the gateway need not go on
TEST(endpoint, ends_at_a_stop) {
  endpoint_rig x;
  auto reply = std::async(std::launch::async, [&] { return x.complete(R"("prompt": "a", "stop": "END")"); });
  x.front.tell(1, "beforeEN");
  x.front.tell(1, "Dbehind");
  const auto answer = json::parse(reply.get().body);
  EXPECT_EQ(answer.at("choices").at(0).at("text"), "before");
  EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(x.front.was_cancelled(1));
}

// given: a chat as a stream, with counts / expected: who speaks, pieces as they come, the counts, the end
TEST(endpoint, streams) {
  endpoint_rig x;
  web_client client(x.served.port());
  const std::string body = R"({"model": "small", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4,
                              "stream": true, "stream_options": {"include_usage": true}})";
  client.send(web_question{"POST", "/v1/chat/completions", {}, body}.text(x.served.port()));
  x.front.tell(1, "o");
  EXPECT_THAT(client.receive_until("\"o\""), HasSubstr("\"assistant\""));
  x.front.tell(1, "k");
  client.receive_until("\"k\"");
  x.front.end(1);
  const auto rest = client.receive_until("[DONE]");
  EXPECT_THAT(rest, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_THAT(rest, HasSubstr("\"completion_tokens\":2"));
}

// given: a reader of a stream that goes / expected: its request ends
TEST(endpoint, cancels_who_goes) {
  endpoint_rig x;
  {
    web_client client(x.served.port());
    client.send(
        web_question{"POST", "/v1/completions", {}, R"({"model": "small", "prompt": "a", "stream": true})"}.text(
            x.served.port()));
    x.front.tell(1, "o");
    client.receive_until("\"o\"");
  }
  EXPECT_TRUE(x.front.was_cancelled(1));
}

// given: a client that waits for a whole answer, one that waits for a stream's first token, and one that waits on, and
// has sent its next request already / expected: requests of those that go end; the other has its answer
TEST(endpoint, cancels_who_goes_before_it_was_told_anything) {
  endpoint_rig x;
  const auto question = [&](const std::string& more) {
    return web_question{"POST", "/v1/completions", {}, R"({"model": "small", "prompt": "a")" + more + "}"}.text(
        x.served.port());
  };
  web_client stays(x.served.port());
  stays.send(question(""));
  x.front.wish(1);
  stays.send(question(""));
  for (const std::string more : {"", R"(, "stream": true)"}) {
    web_client goes(x.served.port());
    goes.send(question(more));
    x.front.wish(more.empty() ? 2 : 3);
  }
  EXPECT_TRUE(x.front.was_cancelled(2));
  EXPECT_TRUE(x.front.was_cancelled(3));
  x.front.tell(1, "yes");
  x.front.end(1);
  stays.receive_until("yes");
}

// given: what ends a request before its first token, and after it / expected: a status with Retry-After; an event
TEST(endpoint, says_why_there_is_no_more) {
  endpoint_rig x;
  const std::pair<request_end, unsigned> ends[] = {{request_end::unserved, 503},
                                                   {request_end::closed, 503},
                                                   {request_end::not_finite, 500},
                                                   {request_end::threw, 500}};
  std::uint64_t id = 0;
  for (const auto& [why, status] : ends)
    for (const std::string more : {"", R"(, "stream": true)"}) {
      auto reply = std::async(std::launch::async, [&] { return x.complete(R"("prompt": "a")" + more); });
      x.front.end(++id, why);
      const auto got = reply.get();
      EXPECT_EQ(got.status, status);
      EXPECT_EQ(got.headers.contains("Retry-After"), status == 503);
    }
  auto reply = std::async(std::launch::async, [&] { return x.complete(R"("prompt": "a", "stream": true)"); });
  x.front.tell(++id, "o");
  x.front.end(id, request_end::threw);
  const auto got = reply.get();
  EXPECT_EQ(got.status, 200u);
  EXPECT_THAT(got.body, HasSubstr("data: {\"error\""));
  EXPECT_THAT(got.body, Not(HasSubstr("[DONE]")));
}

TEST(endpoint, refuses_what_it_is_not_asked_for) {
  endpoint_rig x;
  EXPECT_EQ(x.ask("/v1/other", "").status, 404u);
  EXPECT_EQ(x.ask("/v1/completions", "").status, 405u);
  EXPECT_EQ(x.ask("/v1/models", "{}").status, 405u);
  EXPECT_EQ(x.complete(R"("prompt": "a", "n": 2)").status, 400u);
  EXPECT_EQ(x.ask("/v1/completions", R"({"model": "other", "prompt": "a"})").status, 404u);
  EXPECT_EQ(x.ask("/v1/completions", std::string(5000, 'x')).status, 413u);
  web_client slow(x.served.port());
  slow.send("POST /v1/completions HTTP/1.1\r\n");
  EXPECT_EQ(slow.receive().status, 408u);
  x.front.full = true;
  const auto got = x.complete(R"("prompt": "a")");
  EXPECT_EQ(got.status, 429u);
  EXPECT_EQ(got.headers.at("Retry-After"), "1");
  EXPECT_THAT(error_in(got), HasSubstr("rate_limit_error"));
}

// given: a gateway that turns away / expected: 429 whatever is in the body, on a connection that stays; of a long one,
// or one that waits to be asked for, before any of it came; but 401 and 404 as ever; and 503 once the doors are closed
TEST(endpoint, refuses_before_it_reads) {
  endpoint_rig x;
  x.front.full_at_once = true;
  web_client one(x.served.port());
  EXPECT_EQ(one.ask({"POST", "/v1/completions", {}, "{"}).status, 429u);
  const auto again = one.ask({"POST", "/v1/chat/completions", {}, "{}"});
  EXPECT_EQ(again.status, 429u);
  EXPECT_EQ(again.headers.at("Retry-After"), "1");
  EXPECT_EQ(one.ask({"GET", "/health", {}, {}}).status, 200u);
  for (const char* head : {"Content-Length: 2000", "Content-Length: 2\r\nExpect: 100-continue"}) {
    web_client other(x.served.port());
    other.send(std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n") + head + "\r\n\r\n");
    EXPECT_EQ(other.receive().status, 429u) << head;
  }
  EXPECT_EQ(x.front.turned_away, 4);
  EXPECT_EQ(x.front.requests(), 0u);
  EXPECT_EQ(one.ask({"POST", "/v1/other", {}, std::string(2000, 'x')}).status, 404u);
  x.front.full_at_once = false;
  EXPECT_EQ(one.ask({"POST", "/v1/completions", {}, "{"}).status, 400u);
  x.front.full_at_once = true;
  x.served.close_doors();
  EXPECT_EQ(one.ask({"POST", "/v1/completions", {}, R"({"model": "small", "prompt": "a"})"}).status, 503u);
}

TEST(endpoint, tells_what_is_served) {
  endpoint_rig x;
  EXPECT_EQ(json::parse(x.ask("/v1/models", "").body).at("data").at(0).at("id"), "small");
  EXPECT_EQ(x.ask("/health", "").status, 200u);
  x.front.serve(nullptr);
  EXPECT_EQ(x.ask("/v1/models", "").status, 503u);
}

// given: a tokenizer that is not here / expected: 503 with its name, which the manager hears as well
TEST(endpoint, says_that_its_tokenizer_is_missing) {
  endpoint_rig x;
  job_specification job = *x.front.job();
  job.serve.tokenizer = "/nowhere/tokenizer.json";
  x.front.serve(std::make_shared<const job_specification>(job));
  const auto got = x.complete(R"("prompt": "a")");
  EXPECT_EQ(got.status, 503u);
  EXPECT_THAT(error_in(got), HasSubstr("/nowhere/tokenizer.json"));
  EXPECT_THAT(x.front.problem(), HasSubstr("/nowhere/tokenizer.json"));
}

// given: a file with two keys / expected: who shows one may ask; /health is for all; files without a good key are
// refused
TEST(endpoint, asks_for_a_key) {
  const own_folder folder;
  const auto write = [&](const std::string& text) {
    std::ofstream(folder / "keys") << text;
    return api_keys(folder / "keys");
  };
  EXPECT_THROW(write(""), std::runtime_error);
  EXPECT_THROW(write("short\n"), std::runtime_error);
  EXPECT_THROW(api_keys(folder / "none"), std::runtime_error);
  endpoint_rig x(write("# of the first team\n0123456789abcdef\nfedcba9876543210\r\n"));
  EXPECT_EQ(x.ask("/v1/models", "").status, 401u);
  EXPECT_EQ(x.ask("/v1/models", "", "Bearer 0123456789abcdeF").status, 401u);
  EXPECT_EQ(x.ask("/v1/models", "", "0123456789abcdef").status, 401u);
  EXPECT_EQ(x.ask("/v1/models", "", "Bearer 0123456789abcdef").status, 200u);
  EXPECT_EQ(x.ask("/v1/models", "", "Bearer fedcba9876543210").status, 200u);
  EXPECT_EQ(x.ask("/health", "").status, 200u);
}

// given: no keys; questions that a page of somebody else would ask in a browser here, by a name of its own or from its
// origin / expected: refused; programs and pages of this machine are answered, and who asks for health
TEST(endpoint, without_keys_is_for_its_own_machine) {
  endpoint_rig x;
  const auto status = [&](const std::string& target, std::map<std::string, std::string> headers) {
    return web_client(x.served.port()).ask({"GET", target, std::move(headers), {}}).status;
  };
  for (const auto* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "192.0.2.1", "0.0.0.0", "["})
    EXPECT_EQ(status("/v1/models", {{"Host", host}}), 403u) << host;
  for (const auto* origin : {"https://evil.example", "null", "http://192.0.2.1:8000", "localhost"})
    EXPECT_EQ(status("/v1/models", {{"Origin", origin}}), 403u) << origin;
  for (const auto* host : {"localhost", "localhost:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000"})
    EXPECT_EQ(status("/v1/models", {{"Host", host}}), 200u) << host;
  EXPECT_EQ(status("/v1/models", {{"Origin", "http://localhost:3000"}}), 200u);
  EXPECT_EQ(status("/health", {{"Host", "evil.example"}}), 200u);
}

// given: doors that are closed while a request runs, then a gateway that goes / expected: nothing new is taken; what
// runs goes on until then, and is told
TEST(endpoint, closes_its_doors) {
  endpoint_rig x;
  auto runs = std::async(std::launch::async, [&] { return x.complete(R"("prompt": "a")"); });
  x.front.wish(1);
  x.served.close_doors();
  EXPECT_TRUE(eventually([&] { return x.complete(R"("prompt": "a")").status == 503; }));
  EXPECT_EQ(x.ask("/health", "").status, 503u);
  x.front.tell(1, "o");
  x.served.let_go(x.front);
  EXPECT_EQ(runs.get().status, 503u);
}

} // namespace
} // namespace parcae
