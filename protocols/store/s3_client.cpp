#include "protocols/store/s3_client.hpp"

#include "protocols/base/digest.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/store/aws_signature.hpp"
#include "protocols/store/retry.hpp"
#include "protocols/store/s3_answers.hpp"

#include <algorithm>

namespace parcae {

namespace {

constexpr std::string_view unsigned_payload = "UNSIGNED-PAYLOAD";
constexpr std::chrono::minutes odd_clock{10}; // S3 takes 15

std::chrono::sys_seconds wall_clock() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

/// A place as people write it.
std::string name_of(const s3_site& site, const s3_request& x) {
  return "s3://" + site.bucket + (x.key.empty() ? "" : "/" + printable(x.key, 300));
}

std::string advice_on(const s3_refusal& x, unsigned status) {
  if (x.code == "NoSuchBucket")
    return "; make the bucket, or name another";
  if (x.code == "PermanentRedirect" || x.code == "AuthorizationHeaderMalformed" || status == 301)
    return "; the bucket is in another region: set checkpoint.region or AWS_REGION";
  if (x.code == "RequestTimeTooSkewed")
    return "; set this machine's clock";
  if (x.code == "NotImplemented")
    return "; the server does not know this request";
  if (status == 401 || status == 403)
    return "; see whether the credentials in the environment or ~/.aws/credentials are right, and may do this";
  return "";
}

store_error refused(const std::string& place, const std::string& method, unsigned status, const s3_refusal& x) {
  if (status == 404 && x.code != "NoSuchBucket")
    return {store_trouble::absent, place + " is not there"};
  auto said = x.code.empty() ? "" : " " + x.code;
  if (!x.message.empty())
    said += ": " + x.message;
  return {store_trouble::unreachable, place + ": " + method + " was answered with HTTP status " +
                                          std::to_string(status) + said + advice_on(x, status)};
}

/// One stop for two tokens.
class joined_stop {
public:
  joined_stop(const std::stop_token& a, const std::stop_token& b) :
      first_(a, [this] { both_.request_stop(); }), second_(b, [this] { both_.request_stop(); }) {}

  std::stop_token token() const { return both_.get_token(); }

private:
  std::stop_source both_;
  std::stop_callback<std::function<void()>> first_, second_;
};

} // namespace

s3_client::s3_client(s3_site site, store_options options) :
    site_(std::move(site)), options_(std::move(options)), credentials_(options_) {}

std::unique_ptr<http_client> s3_client::connection() {
  const lock held(mutex_);
  if (!idle_.empty()) {
    auto result = std::move(idle_.back());
    idle_.pop_back();
    return result;
  }
  if (site_.server.tls && !trust_)
    try {
      trust_ = make_http_trust(environment("AWS_CA_BUNDLE"));
    } catch (const std::runtime_error& e) {
      throw store_error(store_trouble::unreachable, e.what());
    }
  return std::make_unique<http_client>(site_.server, trust_);
}

void s3_client::keep(std::unique_ptr<http_client> x) {
  const lock held(mutex_);
  idle_.push_back(std::move(x));
}

http_request s3_client::signed_request(const s3_request& x, const std::string& sha256, const std::string& md5,
                                       const aws_credentials& by) const {
  const auto now = wall_clock() + std::chrono::seconds(clock_ahead_s_);
  http_request result{x.method, site_.path_of(x.key), x.headers, x.body};
  auto& headers = result.headers;
  headers.emplace_back("x-amz-content-sha256", sha256);
  headers.emplace_back("x-amz-date", aws_time(now));
  if (!md5.empty())
    headers.emplace_back("Content-MD5", md5);
  if (!by.token.empty())
    headers.emplace_back("x-amz-security-token", by.token);
  aws_request to_sign{x.method, result.target, x.query, headers, sha256};
  to_sign.headers.emplace_back("host", site_.server.authority());
  headers.emplace_back("Authorization", aws_authorization(to_sign, by, site_.region, "s3", now));
  if (!x.query.empty())
    result.target += "?" + canonical_query(x.query);
  return result;
}

http_answer s3_client::ask(const s3_request& x) {
  const auto place = name_of(site_, x);
  const joined_stop stop(options_.stop, x.stop);
  // Over TLS nobody changes the body on its way; what the server made of it, the MD5 says.
  const auto sha256 = site_.server.tls && !x.body.empty() ? std::string(unsigned_payload) : sha256_of(x.body);
  const auto md5 = x.body.empty() ? std::string() : md5_of(x.body);
  const auto limits = limits_of(options_.pace, x.body.size() + x.into.size());
  const auto most = x.once ? 1 : options_.pace.attempts;
  for (unsigned attempt = 1;; ++attempt) {
    const auto by = credentials_.get();
    if (!by.token.empty() && !site_.server.tls && !options_.endpoint.empty()) // a job said so, not this machine's owner
      throw store_error(store_trouble::unreachable,
                        place + ": the credentials are a session's, whose token is not sent to " + site_.server.text() +
                            ": name an endpoint with https://, or set AWS_ENDPOINT_URL here");
    auto client = connection();
    auto answer = client->ask(signed_request(x, sha256, md5, by), limits, stop.token(), x.into);
    auto failure = store_error(store_trouble::unreachable,
                               place + ": " + site_.server.text() + ": " + (answer ? "" : answer.error()));
    if (answer) {
      keep(std::move(client));
      if (answer->status / 100 == 2 || std::ranges::count(x.also, answer->status))
        return std::move(*answer);
      const auto refusal = read_refusal(answer->body);
      failure = refused(place, x.method, answer->status, refusal);
      auto remedy = remedy_of(answer->status, refusal);
      const auto theirs = parse_web_time(std::string(answer->header("Date")));
      const auto ahead = theirs ? *theirs - wall_clock() : std::chrono::seconds(clock_ahead_s_);
      if (x.method == "HEAD" && answer->status == 403 &&
          std::chrono::abs(ahead - std::chrono::seconds(clock_ahead_s_)) > odd_clock)
        remedy = s3_remedy::clock; // it cannot say so
      if (remedy == s3_remedy::clock)
        clock_ahead_s_ = ahead.count();
      if (remedy == s3_remedy::none || (remedy == s3_remedy::clock && !theirs) ||
          (remedy == s3_remedy::credentials && !credentials_.refuse(by)))
        throw failure;
    }
    if (attempt >= most || !pause(pause_after(attempt, options_.pace, random_number()), stop.token()))
      throw store_error(failure.trouble,
                        failure.what() + std::string(most > 1 && attempt >= most
                                                         ? " (" + std::to_string(attempt) + " attempts)"
                                                         : ""));
  }
}

} // namespace parcae
