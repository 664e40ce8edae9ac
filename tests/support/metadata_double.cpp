#include "tests/support/metadata_double.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/json.hpp>

#include <algorithm>
#include <ctime>

namespace parcae {

namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

std::string date_of(std::chrono::system_clock::time_point x) {
  const auto seconds = std::chrono::system_clock::to_time_t(x);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

/// The value of a query's parameter; empty: there is none.
std::string parameter(const std::string& target, const std::string& name) {
  const auto begin = target.find_first_of("?");
  const auto at = begin == target.npos ? begin : target.find(name + "=", begin);
  if (at == target.npos)
    return {};
  const auto from = at + name.size() + 1;
  return target.substr(from, target.find('&', from) - from);
}

std::string tag_of(const std::string& value) {
  return std::to_string(std::hash<std::string>()(value));
}

} // namespace

struct metadata_double::asked {
  std::string method, target, path, body;
  std::string token, token_ttl, flavor, metadata; ///< headers
};

struct metadata_double::reply {
  unsigned status = 404;
  std::string body{};
  std::string type = "text/plain";
  std::string tag{}, flavor{}, token_ttl{}; ///< headers; empty: not sent
  std::function<bool()> changed{};          ///< set: first wait until it holds, then ask again
  std::chrono::milliseconds at_most{0};     ///< wait
};

metadata_double::metadata_double() :
    web_([this](const auto& x) { return serve(x); }, {},
         [this](const auto& x, auto& socket) { return misbehaves(x, socket); }) {}

metadata_double::~metadata_double() {
  over_ = true;
}

void metadata_double::change(const std::function<void(metadata_documents&)>& how) {
  const std::lock_guard held(mutex_);
  how(documents_);
}

void metadata_double::expire_tokens() {
  const std::lock_guard held(mutex_);
  tokens_.clear();
}

std::vector<std::string> metadata_double::requests() const {
  const std::lock_guard held(mutex_);
  return requests_;
}

std::size_t metadata_double::count(const std::string& beginning) const {
  const auto all = requests();
  return static_cast<std::size_t>(
      std::ranges::count_if(all, [&](const std::string& x) { return x.starts_with(beginning); }));
}

std::vector<std::string> metadata_double::acknowledged() const {
  const std::lock_guard held(mutex_);
  return acknowledged_;
}

// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
metadata_double::reply metadata_double::of_aws(const asked& x) {
  if (x.path == "/latest/api/token") {
    if (x.method != "PUT")
      return {.status = 405};
    const auto wanted = std::atoi(x.token_ttl.c_str());
    if (wanted < 1 || wanted > 21'600)
      return {.status = 400};
    tokens_.push_back("AQAE" + std::to_string(++tokens_made_) + "==");
    const auto life = std::min<std::int64_t>(wanted, documents_.max_token_life.count());
    return {.status = 200, .body = tokens_.back(), .token_ttl = std::to_string(life)};
  }
  if (std::ranges::find(tokens_, x.token) == tokens_.end())
    return {.status = 401};
  if (const std::string roles = "/latest/meta-data/iam/security-credentials/"; x.path.starts_with(roles)) {
    if (!documents_.role_credentials)
      return {};
    return {.status = 200, .body = x.path == roles ? "tests" : *documents_.role_credentials};
  }
  const auto& document =
      x.path == "/latest/meta-data/spot/instance-action" ? documents_.instance_action : documents_.rebalance;
  if (x.path != "/latest/meta-data/spot/instance-action" &&
      x.path != "/latest/meta-data/events/recommendations/rebalance")
    return {};
  return document ? reply{.status = 200, .body = *document, .type = "application/json"} : reply{};
}

// https://cloud.google.com/compute/docs/metadata/querying-metadata
metadata_double::reply metadata_double::of_google(const asked& x) {
  if (x.flavor != "Google")
    return {.status = 403};
  const bool of_preemption = x.path == "/computeMetadata/v1/instance/preempted";
  if (!of_preemption && x.path != "/computeMetadata/v1/instance/maintenance-event")
    return {};
  const auto value = [this, of_preemption] { return of_preemption ? documents_.preempted : documents_.maintenance; };
  const auto known = parameter(x.target, "last_etag");
  if (documents_.holds && parameter(x.target, "wait_for_change") == "true" && known == tag_of(value()))
    return {.changed = [=] { return known != tag_of(value()); },
            .at_most = std::chrono::seconds(std::atoi(parameter(x.target, "timeout_sec").c_str()))};
  return {.status = 200,
          .body = value() + "\n",
          .type = "application/text",
          .tag = tag_of(value()),
          .flavor = documents_.says_google ? "Google" : ""};
}

// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
metadata_double::reply metadata_double::of_azure(const asked& x) {
  if (x.metadata != "true" || parameter(x.target, "api-version").empty())
    return {.status = 400};
  if (x.path == "/metadata/instance/compute/name" && parameter(x.target, "format") == "text")
    return {.status = 200, .body = documents_.name};
  if (x.path != "/metadata/scheduledevents" || parameter(x.target, "api-version") != "2020-07-01")
    return {};
  if (x.method == "GET")
    return {.status = 200, .body = documents_.events, .type = "application/json"};
  boost::json::error_code bad;
  const auto body = boost::json::parse(x.body, bad);
  if (bad || !body.is_object() || !body.as_object().contains("StartRequests"))
    return {.status = 400};
  for (const auto& event : body.at("StartRequests").as_array())
    acknowledged_.emplace_back(event.at("EventId").as_string());
  return {.status = 200};
}

metadata_double::reply metadata_double::answer(const asked& x) {
  const std::lock_guard held(mutex_);
  if (documents_.is_aws && x.path.starts_with("/latest/"))
    return of_aws(x);
  if (documents_.is_gcp && x.path.starts_with("/computeMetadata/"))
    return of_google(x);
  if (documents_.is_azure && x.path.starts_with("/metadata/"))
    return of_azure(x);
  return {};
}

web_double::response metadata_double::serve(const web_double::request& request) {
  const auto header = [&](const char* name) { return std::string(request[name]); };
  asked x{.method = std::string(request.method_string()),
          .target = std::string(request.target()),
          .path = {},
          .body = request.body(),
          .token = header("X-aws-ec2-metadata-token"),
          .token_ttl = header("X-aws-ec2-metadata-token-ttl-seconds"),
          .flavor = header("Metadata-Flavor"),
          .metadata = header("Metadata")};
  x.path = x.target.substr(0, x.target.find('?'));
  auto y = answer(x);
  if (y.changed) {
    const auto end = std::chrono::steady_clock::now() + y.at_most;
    for (bool changed = false; !changed && !over_ && std::chrono::steady_clock::now() < end;) {
      std::this_thread::sleep_for(5ms);
      const std::lock_guard held(mutex_);
      changed = y.changed();
    }
    x.target = x.path; // now the value, whatever it is
    y = answer(x);
  }
  auto response = web_double::make(y.status, y.body);
  response.keep_alive(false);
  {
    const std::lock_guard held(mutex_);
    response.set("Date", date_of(std::chrono::system_clock::now() + documents_.clock_ahead));
  }
  response.set("Content-Type", y.type);
  for (const auto& [name, value] : {std::pair("ETag", y.tag), std::pair("Metadata-Flavor", y.flavor),
                                    std::pair("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", y.token_ttl)})
    if (!value.empty())
      response.set(name, value);
  return response;
}

bool metadata_double::misbehaves(const web_double::request& request, asio::ip::tcp::socket& socket) {
  {
    const std::lock_guard held(mutex_);
    requests_.push_back(std::string(request.method_string()) + " " + std::string(request.target()));
  }
  const auto how = how_.load();
  const auto status = [](const char* line, const std::string& more = {}) {
    return std::string("HTTP/1.1 ") + line + "\r\n" + more + "Content-Length: 2\r\n\r\n{}";
  };
  std::string text;
  switch (how) {
  case misbehaviour::none:
    return false;
  case misbehaviour::hang_up:
    return true;
  case misbehaviour::http_500:
    text = status("500 Internal Server Error");
    break;
  case misbehaviour::http_503:
    text = status("503 Service Unavailable", "Retry-After: 1\r\n");
    break;
  case misbehaviour::http_429:
    text = status("429 Too Many Requests");
    break;
  case misbehaviour::redirect:
    text = status("302 Found", "Location: " + ("http://" + server()) + "/moved\r\n");
    break;
  case misbehaviour::nonsense:
    text = "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 14\r\n\r\n\x1b[2J{\"oh\": no}";
    break;
  case misbehaviour::no_http:
    text = std::string("\x16\x03\x01\x00\xff no HTTP", 13) + "\r\n\r\n";
    break;
  case misbehaviour::truncated:
    text = "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 100\r\n\r\nFALSE";
    break;
  case misbehaviour::silence:
  case misbehaviour::trickle:
  case misbehaviour::endless:
    text = "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n\r\n";
    break;
  case misbehaviour::long_head:
    text = "HTTP/1.1 200 OK\r\n";
    break;
  }
  if (how == misbehaviour::silence) {
    socket.non_blocking(true);
    for (boost::system::error_code state = asio::error::would_block; state == asio::error::would_block && !over_;) {
      std::this_thread::sleep_for(5ms);
      char byte; // never sent: this ends with the client
      socket.read_some(asio::buffer(&byte, 1), state);
    }
    return true;
  }
  for (std::size_t i = 0; how == misbehaviour::trickle && !over_; ++i) { // a write throws when the client has hung up
    asio::write(socket, asio::buffer(i < text.size() ? text.substr(i, 1) : "x"));
    std::this_thread::sleep_for(50ms);
  }
  asio::write(socket, asio::buffer(text));
  const auto more = how == misbehaviour::long_head ? "X: " + std::string(1000, 'x') + "\r\n" : std::string(1000, 'x');
  while ((how == misbehaviour::endless || how == misbehaviour::long_head) && !over_)
    asio::write(socket, asio::buffer(more));
  return true;
}

} // namespace parcae
