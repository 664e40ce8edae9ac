#pragma once

// `parcae web` before a real cluster, and what a test asks it.

#include "tests/support/cluster.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/web_client.hpp"

#include <boost/json.hpp>

#include <memory>

namespace parcae {

class web_cluster : public cluster_test {
protected:
  using json = boost::json::value;

  /// Serves on a free port; returns when it listens.
  void start_web(std::vector<std::string> more = {}) {
    const auto out = folder.path() / "web.out";
    std::filesystem::remove(out);
    more.insert(more.begin(), {sibling_program("parcae"), "web", "--manager", to_string(cluster->where()), "--listen",
                               listen, "--token-file", token_file()});
    web = std::make_unique<child_process>(launch_options{std::move(more), out, folder.path() / "web.log"});
    const std::string before = "listening on ";
    std::string line;
    ASSERT_TRUE(eventually([&] { return !(line = content(out)).empty() && line.ends_with('\n'); }));
    ASSERT_TRUE(line.starts_with(before)) << line;
    port = parse_address(line.substr(before.size(), line.find('\n') - before.size())).port;
    token = content(token_file());
    token.pop_back();
  }

  std::filesystem::path token_file() const { return folder.path() / "token"; }

  web_question with_token(web_question x) const {
    x.headers.emplace("Authorization", "Bearer " + token);
    return x;
  }

  web_reply ask(const web_question& x) const { return web_client(port).ask(with_token(x)); }

  /// What a resource of the API says.
  json look(const std::string& what) const {
    const auto x = ask({.target = "/api/v1/" + what});
    EXPECT_EQ(x.status, 200u) << what << ": " << x.body;
    return boost::json::parse(x.body);
  }

  web_reply change(const std::string& what, const std::string& body = {},
                   const std::string& type = "text/plain") const {
    web_question x{.method = "POST", .target = "/api/v1/" + what, .headers = {{"Content-Type", type}}, .body = body};
    if (body.empty())
      x.headers.emplace("Content-Length", "0");
    return ask(x);
  }

  std::string listen = "127.0.0.1:0";
  std::unique_ptr<child_process> web;
  std::uint16_t port = 0;
  std::string token;
};

} // namespace parcae
