#include "runtime/web/web.hpp"

#include "runtime/process/address.hpp"
#include "runtime/process/logging.hpp"
#include "runtime/process/termination.hpp"
#include "runtime/web/poller.hpp"
#include "runtime/web/server.hpp"

#include <boost/algorithm/string/case_conv.hpp>
#include <boost/asio/post.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <list>
#include <random>
#include <tuple>

namespace parcae {

namespace {

namespace asio = boost::asio;

struct web_options {
  std::shared_ptr<manager_option> manager;
  std::string listen = "127.0.0.1:8080", certificate, key, token, read_token;
  std::vector<std::string> hosts, clusters;
};

/// A cluster, what is known of it, and who asks.
struct shown_cluster {
  std::string name;
  manager_option manager;
  web_board board;
  std::unique_ptr<web_actions> actions = make_web_actions(manager);
};

/// NAME=MANAGERS[@BUNDLE]. Throws std::invalid_argument.
std::pair<std::string, manager_option> parse_cluster(const std::string& text, const std::string& bundle) {
  constexpr auto letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  const auto equals = text.find('=');
  const auto name = text.substr(0, equals);
  if (equals == text.npos || name.empty() || name.front() == '.' || name.find_first_not_of(letters) != name.npos)
    throw std::invalid_argument("--cluster takes NAME=HOST:PORT[,HOST:PORT...][@BUNDLE], a name of letters, digits and "
                                "\"-_.\", not \"" +
                                text + "\"");
  const auto at = std::min(text.find('@', equals), text.size());
  manager_option result{text.substr(equals + 1, at - equals - 1), bundle};
  if (at != text.size())
    result.bundle = text.substr(at + 1);
  if (at != text.size() && !std::filesystem::is_regular_file(result.bundle))
    throw std::invalid_argument("--cluster " + name + ": there is no bundle " + result.bundle);
  return {name, result};
}

/// Those that are named, or the one whose manager is; throws std::invalid_argument.
std::list<shown_cluster> clusters_of(const web_options& options) {
  std::random_device random;
  std::list<shown_cluster> result;
  const auto add = [&](const std::string& name, const manager_option& manager) {
    manager.access(); // is checked
    if (std::ranges::find(result, name, &shown_cluster::name) != result.end())
      throw std::invalid_argument("two clusters are named " + name);
    result.push_back({name, manager, web_board(std::to_string(random()))});
  };
  for (const auto& x : options.clusters)
    std::apply(add, parse_cluster(x, options.manager->bundle));
  if (result.empty())
    add("cluster", *options.manager);
  return result;
}

/// Who asks for this cluster, and tells its board on the server's thread.
std::unique_ptr<poller> poller_of(shown_cluster& x, asio::io_context& context, const web_server& server) {
  auto& board = x.board;
  const auto heard = [&](auto status) {
    asio::post(context, [&board, status = std::move(status)]() mutable {
      board.heard(std::move(status), std::chrono::steady_clock::now());
    });
  };
  const auto away = [&](std::string why) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now);
    asio::post(context, [&board, why = std::move(why), us = us.count()] { board.away(why, us); });
  };
  const auto certificate = [&](std::string what) {
    if (what.empty() && server.certificate_ends_within(std::chrono::days(14)))
      what = "the certificate that browsers see ends soon: start parcae web with another";
    asio::post(context, [&board, what = std::move(what)]() mutable { board.warn(std::move(what)); });
  };
  return std::make_unique<poller>(x.manager.access(), poller::listener{heard, away, certificate});
}

/// Loopback, or TLS and a token.
asio::ip::tcp::endpoint place_of(const web_options& x, const http_identity& identity) {
  const auto where = parse_address(x.listen);
  boost::system::error_code bad;
  const auto address = asio::ip::make_address(where.host == "localhost" ? "127.0.0.1" : where.host, bad);
  if (bad)
    throw std::invalid_argument("--listen needs a numeric address: " + x.listen);
  if (!address.is_loopback() && (identity.certificate.empty() || x.token.empty()))
    throw std::invalid_argument("refusing " + where.host +
                                ": beyond loopback it takes --token-file, and --bundle, or --certificate and --key");
  return {address, where.port};
}

void run(const web_options& options) {
  http_identity identity{options.certificate, options.key};
  if (options.certificate.empty() && !options.token.empty() && !is_loopback(parse_address(options.listen).host))
    identity = {options.manager->bundle, options.manager->bundle};
  const auto where = place_of(options, identity);
  auto clusters = clusters_of(options);
  web_access access;
  if (!options.token.empty())
    access.token = read_token(options.token);
  if (!options.read_token.empty())
    access.read_token = read_token(options.read_token);
  if (!access.token.empty() && access.token == access.read_token)
    throw std::invalid_argument(
        "the tokens in " + options.token + " and " + options.read_token +
        " are the same: who may only look could change all; remove one file, and another is made");
  for (const auto& x : options.hosts)
    access.hosts.insert(boost::algorithm::to_lower_copy(x));
  log_to_stderr("web");
  termination end;
  asio::io_context context{1};
  auto work = asio::make_work_guard(context);
  std::vector<served_cluster> served;
  for (auto& x : clusters)
    served.push_back({x.name, x.board, *x.actions});
  web_routes routes(std::move(access), std::move(served));
  web_server server(context, where, identity, routes);
  std::printf("listening on %s\n", to_string(address{where.address().to_string(), server.port()}).c_str());
  std::fflush(stdout);
  std::jthread serving([&] { context.run(); });
  {
    std::vector<std::unique_ptr<poller>> pollers;
    for (auto& x : clusters)
      pollers.push_back(poller_of(x, context, server));
    end.wait([&] { end.stop(); });
    limit_shutdown(5);
  }
  context.stop();
}

} // namespace

void add_web(CLI::App& app) {
  auto command = app.add_subcommand("web", "show the cluster over HTTP: a page, JSON, events\n"
                                           "Example: parcae web --listen 127.0.0.1:8080");
  const auto x = std::make_shared<web_options>();
  x->manager = add_manager_option(*command);
  command->add_option("--cluster", x->clusters, "instead of --manager, of several: NAME=MANAGERS[@BUNDLE] (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--listen", x->listen, "HOST:PORT; port 0: any free one; beyond loopback only with TLS and token")
      ->capture_default_str();
  auto* certificate =
      command->add_option("--certificate", x->certificate, "PEM file: TLS; default beyond loopback: that of --bundle")
          ->check(CLI::ExistingFile);
  auto* key = command->add_option("--key", x->key, "PEM file with its key")->check(CLI::ExistingFile);
  certificate->needs(key);
  key->needs(certificate);
  auto* token = command->add_option("--token-file", x->token,
                                    "file with the token that each request must have; made if it is missing");
  command->add_option("--read-token-file", x->read_token, "the same for those who may only look")->needs(token);
  command->add_option("--host", x->hosts, "another host name by which requests may come (repeatable)")
      ->allow_extra_args(false);
  command->callback([x] { run(*x); });
}

} // namespace parcae
