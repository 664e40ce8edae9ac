#include "protocols/store/aws_credentials.hpp"

#include "protocols/base/input_file.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/http/http_client.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cstdlib>

namespace parcae {

namespace {

namespace json = boost::json;

constexpr std::uint64_t max_file = 1 << 20;
constexpr std::size_t max_value = 4096;                    // of a key or a token
constexpr auto reserve = std::chrono::minutes(5);          // before their end others are read
constexpr auto file_life = std::chrono::minutes(5);        // others may replace it
constexpr auto just_now = std::chrono::seconds(1);         // what was read then is not asked for again
constexpr std::chrono::milliseconds metadata_limit{2'000}; // it is on the machine itself
constexpr std::uint64_t metadata_bytes = 64 * 1024;
constexpr const char* advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials, or give "
                               "the instance a role";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// Fit for a header.
bool is_word(std::string_view x) {
  return !x.empty() && x.size() <= max_value &&
         std::ranges::all_of(x, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

std::string profile_name() {
  const auto name = environment("AWS_PROFILE");
  return name.empty() ? "default" : name;
}

/// Empty if there is none.
std::string file_of(const char* variable, const char* name) {
  auto path = environment(variable);
  if (path.empty())
    path = environment("HOME") + "/.aws/" + name;
  try {
    return contents_of(path, max_file);
  } catch (const input_error&) { // most have none
    return {};
  }
}

std::optional<aws_credentials> of_environment() {
  aws_credentials x{environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
                    environment("AWS_SESSION_TOKEN")};
  if (x.key_id.empty() || x.secret.empty())
    return std::nullopt;
  return x;
}

std::optional<aws_credentials> of_file() {
  const auto text = file_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const auto value = [&](const char* key) { return value_in_profile(text, profile_name(), key); };
  aws_credentials x{value("aws_access_key_id"), value("aws_secret_access_key"), value("aws_session_token")};
  if (x.key_id.empty() || x.secret.empty())
    return std::nullopt;
  return x;
}

/// IMDSv2: a token first, then the role's name, then its credentials. Throws store_error.
aws_credentials of_role(const store_options& options) {
  auto place = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (place.empty())
    place = "http://169.254.169.254";
  const auto fail = [&](const std::string& why) {
    return store_error(store_trouble::unreachable, "no credentials for S3: nothing in the environment, no profile " +
                                                       printable(profile_name(), 60) + " in ~/.aws/credentials, and " +
                                                       printable(place, 100) + ": " + why + "; " + advice);
  };
  if (environment("AWS_EC2_METADATA_DISABLED") == "true")
    throw fail("not asked, for AWS_EC2_METADATA_DISABLED");
  const auto url = parse_http_url(place);
  if (!url)
    throw fail(url.error());
  http_client client(url->server);
  const http_limits limits{metadata_limit, metadata_limit, metadata_limit, metadata_bytes};
  const auto ask = [&](const http_request& request) {
    auto answer = client.ask(request, limits, options.stop);
    if (!answer)
      throw fail(answer.error());
    if (answer->status != 200)
      throw fail("it answers with HTTP status " + std::to_string(answer->status));
    return std::move(answer->body);
  };
  const auto token = ask({"PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "300"}}});
  if (!is_word(token))
    throw fail("its token is none");
  const std::string roles = "/latest/meta-data/iam/security-credentials/";
  const auto names = ask({"GET", roles, {{"X-aws-ec2-metadata-token", token}}});
  const auto role = trimmed(std::string_view(names).substr(0, names.find('\n')));
  if (!is_word(role))
    throw fail("the instance has no role");
  auto result =
      read_role_credentials(ask({"GET", roles + percent_encoded(role), {{"X-aws-ec2-metadata-token", token}}}));
  if (!result)
    throw fail(result.error());
  return *result;
}

} // namespace

std::string environment(const char* name) {
  const auto* value = std::getenv(name);
  return value ? value : "";
}

std::string value_in_profile(std::string_view file, std::string_view profile, std::string_view key) {
  bool here = false;
  while (!file.empty()) {
    auto line = file.substr(0, file.find('\n'));
    file.remove_prefix(std::min(file.size(), line.size() + 1));
    line = trimmed(line);
    if (line.starts_with('[') && line.ends_with(']')) {
      auto name = trimmed(line.substr(1, line.size() - 2));
      if (name.starts_with("profile ")) // so in ~/.aws/config
        name = trimmed(name.substr(8));
      here = name == profile;
    } else if (const auto equals = line.find('='); here && equals != line.npos) {
      const auto value = trimmed(line.substr(equals + 1));
      if (trimmed(line.substr(0, equals)) == key && is_word(value))
        return std::string(value);
    }
  }
  return {};
}

tl::expected<aws_credentials, std::string> read_role_credentials(const std::string& text) {
  json::error_code bad;
  const auto value = json::parse(text, bad, {}, {.max_depth = 8});
  if (bad || !value.is_object())
    return tl::unexpected(std::string("its credentials are no JSON object"));
  const auto text_in = [&](const char* name) {
    const auto* member = value.get_object().if_contains(name);
    const auto* string = member ? member->if_string() : nullptr;
    return string ? std::string(string->data(), string->size()) : std::string();
  };
  if (const auto code = text_in("Code"); !code.empty() && code != "Success")
    return tl::unexpected("it says " + printable(code, 100));
  aws_credentials result{text_in("AccessKeyId"), text_in("SecretAccessKey"), text_in("Token"),
                         parse_web_time(text_in("Expiration"))};
  if (!is_word(result.key_id) || !is_word(result.secret) || (!result.token.empty() && !is_word(result.token)))
    return tl::unexpected(std::string("its credentials are incomplete"));
  return result;
}

aws_credentials credential_source::get() {
  const lock held(mutex_);
  // In seconds: those "until 9999" would not fit into the clock's nanoseconds.
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto age = std::chrono::steady_clock::now() - read_;
  if (known_ && (known_->end ? now + reserve < *known_->end || age < just_now : age < file_life))
    return *known_;
  auto found = of_environment();
  if (!found)
    found = of_file();
  if (!found)
    try {
      found = of_role(options_);
    } catch (const store_error&) {
      if (!known_ || !known_->end || *known_->end <= now)
        throw;
      found = known_; // still good for some minutes
    }
  if (!is_word(found->key_id) || !is_word(found->secret) || (!found->token.empty() && !is_word(found->token)))
    throw store_error(store_trouble::unreachable,
                      std::string("the credentials for S3 have characters that none have; ") + advice);
  read_ = std::chrono::steady_clock::now();
  known_ = std::move(found);
  return *known_;
}

bool credential_source::refuse(const aws_credentials& x) {
  const lock held(mutex_);
  if (!known_ || known_->secret != x.secret || known_->token != x.token)
    return true; // there are others already
  if (std::chrono::steady_clock::now() - read_ < just_now)
    return false;
  known_.reset();
  return true;
}

std::string usual_region() {
  for (const auto* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (auto region = environment(name); !region.empty())
      return region;
  const auto region = value_in_profile(file_of("AWS_CONFIG_FILE", "config"), profile_name(), "region");
  return region.empty() ? "us-east-1" : region;
}

} // namespace parcae
