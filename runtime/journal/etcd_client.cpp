#include "runtime/journal/etcd_client.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/http/http_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace parcae {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint64_t max_body = 256 << 20; // all of a journal, in base64
constexpr std::chrono::seconds one_try{1};    // a member that is cut off does not say so
constexpr milliseconds between_rounds{100};

// {"error": …, "message": …, "code": …}, or something that is none of etcd's.
std::string refusal_in(const http_answer& x) {
  boost::system::error_code bad;
  const auto said = boost::json::parse(x.body, bad);
  const auto* all = bad ? nullptr : said.if_object();
  const auto* text = all ? all->if_contains("error") : nullptr;
  const auto line = text && text->is_string() ? std::string(text->as_string()) : x.body;
  const bool is_full = line.find("database space exceeded") != line.npos;
  return "HTTP status " + std::to_string(x.status) + ", " + printable(line.substr(0, 200)) +
         (is_full ? ": compact it (`etcdctl compact`, `etcdctl defrag`), then `etcdctl alarm disarm`" : "");
}

// Read for each connection, so that certificates can be replaced.
http_trust trust_of(const etcd_place& x) {
  return x.tls ? make_http_trust(x.authority, x.identity) : nullptr;
}

const char* advice_on(const etcd_place& x) {
  return x.tls && x.identity.empty() ? " (if it asks for a certificate: --store-identity)" : "";
}

} // namespace

etcd_place parse_etcd_place(std::string_view text) {
  constexpr std::string_view plain = "etcd://", secure = "etcds://";
  const auto bad = [&](const std::string& why) {
    return std::invalid_argument("\"" + std::string(text) + "\" is no store (" + why +
                                 "): etcd://HOST:PORT,HOST:PORT/NAME, for example etcd://10.0.0.2:2379");
  };
  const bool tls = text.starts_with(secure);
  if (!tls && !text.starts_with(plain))
    throw bad("it begins with neither etcds:// nor etcd://");
  auto rest = text.substr((tls ? secure : plain).size());
  etcd_place result{{}, "/parcae/", tls};
  if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
    const auto name = rest.substr(slash + 1);
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_'; };
    if (name.empty() || name.size() > 100 || !std::ranges::all_of(name, fits))
      throw bad("NAME has 1 to 100 letters, digits, - and _");
    result.prefix = "/" + std::string(name) + "/";
    rest = rest.substr(0, slash);
  }
  for (std::size_t from = 0; from <= rest.size();) {
    const auto comma = std::min(rest.find(',', from), rest.size());
    try {
      result.members.push_back(parse_address(rest.substr(from, comma - from)));
    } catch (const std::invalid_argument& e) {
      throw bad(e.what());
    }
    from = comma + 1;
  }
  return result;
}

std::string to_string(const etcd_place& x) {
  std::string result = x.tls ? "etcds://" : "etcd://";
  for (const auto& member : x.members)
    result += (&member == &x.members.front() ? "" : ",") + to_string(member);
  return result + x.prefix.substr(0, x.prefix.size() - 1);
}

etcd_client::etcd_client(etcd_place place) : place_(std::move(place)) {
  trust_of(place_); // whether it can be read
  std::string problem;
  boost::asio::io_context context;
  boost::asio::ip::tcp::resolver names(context);
  for (const auto& x : place_.members) {
    boost::system::error_code unknown;
    for (const auto& found : names.resolve(x.host, std::to_string(x.port), unknown))
      members_.push_back({place_.tls, x.host, x.port, found.endpoint().address().to_string()});
    if (unknown)
      problem = "no etcd at " + to_string(x) + ": " + unknown.message();
  }
  if (members_.empty())
    throw std::runtime_error(problem);
}

etcd_client::~etcd_client() = default;

boost::json::object etcd_client::ask(const std::string& path, const boost::json::object& question, milliseconds limit) {
  const auto body = boost::json::serialize(question);
  const http_request request{"POST", path, {{"Content-Type", "application/json"}}, std::as_bytes(std::span(body))};
  const auto end = steady_clock::now() + limit;
  std::string problem;
  for (std::size_t tries = 1;; ++tries) {
    const auto& member = members_[at_];
    if (!client_)
      client_ = std::make_unique<http_client>(member, trust_of(place_));
    const auto time = std::min<milliseconds>(std::chrono::ceil<milliseconds>(end - steady_clock::now()), one_try);
    const auto answer = client_->ask(request, {time, time, time, max_body}, {});
    if (answer && answer->status == 200) {
      boost::system::error_code bad;
      auto result = boost::json::parse(answer->body, bad);
      if (!bad && result.is_object())
        return std::move(result.as_object());
    }
    if (answer || problem.empty() || time == one_try) // else it had too little time: what was wrong before says more
      problem = "etcd at " + to_string(address{member.host, member.port}) + ": " +
                (!answer                 ? answer.error() + advice_on(place_)
                 : answer->status == 200 ? "what it answers is no JSON object"
                                         : refusal_in(*answer));
    const bool is_final = answer && answer->status / 100 == 4; // another member would not say otherwise
    at_ = (at_ + 1) % members_.size();
    client_.reset();
    const bool round = tries % members_.size() == 0 && tries > members_.size();
    const auto pause = round ? between_rounds : milliseconds(0);
    if (is_final || steady_clock::now() + pause >= end)
      throw std::runtime_error(problem);
    std::this_thread::sleep_for(pause);
  }
}

} // namespace parcae
