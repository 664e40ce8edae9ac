#pragma once

// The server on loopback, before doubles of what it tells.

#include "runtime/web/server.hpp"
#include "tests/support/client_samples.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/web_client.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/json.hpp>

#include <gmock/gmock.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

namespace parcae {

/// Knows job 3; all wait while it is held.
class actions_double : public web_actions {
public:
  boost::json::value submit(const submission& x) override { return told(x); }
  boost::json::value check(const submission& x) override {
    auto result = told(x);
    result["checked"] = true;
    return result;
  }
  boost::json::value cancel(std::uint64_t job) override { return known(job); }
  boost::json::value checkpoint(std::uint64_t job) override {
    known(job);
    throw web_error(409, "no keeper holds a version of it");
  }
  boost::json::value preempt(const preemption& x) override { return {{"names", boost::json::value_from(x.names)}}; }
  std::string status(std::uint64_t job) override { return boost::json::serialize(known(job)); }
  std::string curve(std::uint64_t job, std::uint64_t points) override {
    known(job);
    return boost::json::serialize(boost::json::object{{"every", points}});
  }
  std::string losses(std::uint64_t job, std::uint64_t from) override {
    known(job);
    return boost::json::serialize(boost::json::object{{"next", from}});
  }

  std::string checkpoints() override { return boost::json::serialize(known(3)); }
  std::shared_ptr<const web_file> parameters(std::uint64_t job, bool asks) override {
    known(job);
    const auto path = testing::TempDir() + "/parameters" + std::to_string(::getpid());
    std::ofstream(path) << std::string(3'000'000, asks ? 'p' : 'q');
    return std::make_shared<const web_file>(path);
  }

  void hold() {
    const std::scoped_lock held(mutex_);
    held_ = true;
  }
  void let_go() {
    const std::scoped_lock held(mutex_);
    held_ = false;
    bell_.notify_all();
  }
  std::size_t waiting() {
    const std::scoped_lock held(mutex_);
    return waiting_;
  }

private:
  static boost::json::object told(const submission& x) {
    return {{"text", x.text},
            {"json", x.json},
            {"name", x.name},
            {"changes", boost::json::value_from(x.changes)},
            {"priority", x.priority}};
  }

  boost::json::value known(std::uint64_t job) {
    std::unique_lock held(mutex_);
    ++waiting_;
    bell_.wait(held, [&] { return !held_; });
    --waiting_;
    if (job != 3)
      throw web_error(404, "there is no job " + std::to_string(job));
    return {{"job", job}};
  }

  std::mutex mutex_;
  std::condition_variable bell_;
  bool held_ = false;
  std::size_t waiting_ = 0;
};

/// A server on a thread of its own.
class served_site {
public:
  explicit served_site(const web_limits& limits) : limits_(limits) {
    boost::asio::post(context, [this] { board.heard(std::make_shared<status_reply>(sample_status()), now()); });
  }
  ~served_site() {
    actions.let_go();
    other_actions.let_go();
    context.stop();
  }

  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
  std::uint16_t port() const { return server.port(); }

  /// Done on the server's thread.
  template <class Function>
  void do_there(Function f) {
    std::promise<void> done;
    boost::asio::post(context, [&] {
      f();
      done.set_value();
    });
    done.get_future().get();
  }

  actions_double actions, other_actions;
  boost::asio::io_context context{1};
  web_board board{"life"}, other_board{"other life"}; ///< of the other nothing is known yet

private:
  const web_limits limits_;
  web_routes routes{{std::string(64, 'a'), std::string(64, 'b'), {"parcae.example"}},
                    {{"mine", board, actions}, {"other", other_board, other_actions}}};
  web_server server{context, {boost::asio::ip::address_v4::loopback(), 0}, {}, routes, limits_};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context.get_executor()};
  std::jthread thread_{[this] { context.run(); }}; ///< ended first
};

struct web_server_test : testing::Test {
  static constexpr auto api = "/api/v1/";

  void start(const web_limits& limits = {}) { server = std::make_unique<served_site>(limits); }
  web_client client(const char* from = "127.0.0.1") { return web_client(server->port(), from); }

  static web_question with_token(web_question x, char digit = 'a') {
    x.headers.emplace("Authorization", "Bearer " + std::string(64, digit));
    return x;
  }
  static web_question look(const std::string& what) { return with_token({.target = api + what}); }
  static web_question change(const std::string& what, const std::string& body = {}) {
    auto x = with_token({.method = "POST", .target = api + what, .body = body});
    if (body.empty())
      x.headers.emplace("Content-Length", "0");
    return x;
  }

  /// On a connection of its own.
  web_reply ask(const web_question& x) { return client().ask(x); }

  /// What was sent, as it is, is answered so, with a line, and then the connection ends, or another request is heard.
  void expect_refused(const std::string& text, unsigned status) {
    auto x = client();
    x.send(text);
    const auto reply = x.receive();
    EXPECT_EQ(reply.status, status) << text.substr(0, 200);
    EXPECT_FALSE(boost::json::parse(reply.body).at("error").as_string().empty());
    if (const auto i = reply.headers.find("Connection"); i != reply.headers.end() && i->second == "close")
      EXPECT_EQ(x.receive_all(), "");
    else
      EXPECT_EQ(x.ask(look("status")).status, 200u);
  }
  void expect_refused(const web_question& x, unsigned status) { expect_refused(x.text(server->port()), status); }

  /// Waits until nobody is connected but who says so.
  void expect_free() {
    EXPECT_TRUE(eventually([&] {
      try {
        return ask(look("status")).status == 200;
      } catch (const std::exception&) {
        return false;
      }
    }));
  }

  /// Makes the manager say so many events.
  void tell_events(std::uint64_t from, std::uint64_t count, std::size_t bytes = 1000) {
    server->do_there([&] {
      auto x = std::make_shared<status_reply>(*server->board.status());
      for (auto i = from; i < from + count; ++i)
        x->news.push_back({i, 1, "warning", std::to_string(i) + " " + std::string(bytes, 'x')});
      server->board.heard(x, served_site::now());
    });
  }

  std::unique_ptr<served_site> server;
};

} // namespace parcae
