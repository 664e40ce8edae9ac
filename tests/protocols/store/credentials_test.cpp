// Where credentials come from, and when they are asked for again.

#include "protocols/store/aws_credentials.hpp"
#include "tests/support/metadata_double.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/web_double.hpp"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

namespace parcae {
namespace {

struct credentials_test : testing::Test {
  credentials_test() {
    for (const auto* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
                             "AWS_EC2_METADATA_DISABLED"})
      unsetenv(name);
    setenv("AWS_SHARED_CREDENTIALS_FILE", file.c_str(), 1);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", ("http://" + server.server()).c_str(), 1);
  }
  ~credentials_test() override { std::filesystem::remove(file); }

  static std::string role(const std::string& key, std::chrono::seconds life) {
    const auto end = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + life);
    std::tm parts{};
    gmtime_r(&end, &parts);
    char text[40];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return R"({"Code": "Success", "AccessKeyId": ")" + key +
           R"(", "SecretAccessKey": "s", "Token": "t", "Expiration": ")" + text + R"("})";
  }

  void give(const std::string& key, std::chrono::seconds life) {
    server.change([&](auto& x) { x.role_credentials = role(key, life); });
  }

  metadata_double server;
  std::string file =
      (std::filesystem::temp_directory_path() / ("parcae-credentials-" + std::to_string(getpid()))).string();
};

// given: credentials in the environment, in a file, of the instance's role / expected: the first of these that are
// there
TEST_F(credentials_test, are_looked_for_in_order) {
  const auto id = [] { return credential_source({}).get().key_id; };
  give("of-role", 1h);
  EXPECT_EQ(id(), "of-role");
  std::ofstream(file) << "[default]\naws_access_key_id=of-file\naws_secret_access_key=s\n"
                         "[work]\naws_access_key_id=of-profile\naws_secret_access_key=s\naws_session_token=t\n";
  EXPECT_EQ(id(), "of-file");
  setenv("AWS_PROFILE", "work", 1);
  EXPECT_EQ(id(), "of-profile");
  EXPECT_EQ(credential_source({}).get().token, "t");
  setenv("AWS_ACCESS_KEY_ID", "of-environment", 1);
  EXPECT_EQ(id(), "of-profile") << "without a secret it is none";
  setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
  EXPECT_EQ(id(), "of-environment");
  setenv("AWS_SECRET_ACCESS_KEY", "s\r\nX-Header: y", 1);
  EXPECT_THROW(id(), store_error);
}

// given: none anywhere; no role; a metadata server in all ways of being broken / expected: told in one line, soon
TEST_F(credentials_test, that_there_are_none_is_told) {
  const auto error = [] {
    const auto begin = std::chrono::steady_clock::now();
    try {
      credential_source({}).get();
    } catch (const store_error& e) {
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(error(), testing::AllOf(HasSubstr("no credentials for S3"), HasSubstr("set AWS_ACCESS_KEY_ID")));
  for (const auto how : {misbehaviour::http_500, misbehaviour::hang_up, misbehaviour::no_http, misbehaviour::nonsense,
                         misbehaviour::endless, misbehaviour::truncated, misbehaviour::silence}) {
    server.misbehave(how);
    EXPECT_THAT(error(), HasSubstr("no credentials for S3")) << static_cast<int>(how);
  }
  setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  EXPECT_THAT(error(), HasSubstr("AWS_EC2_METADATA_DISABLED"));
}

// given: a role's credentials that end in an hour, in four minutes, or are over / expected: asked for once; again, five
// minutes before they end; and what is still good is used while there is nothing else
TEST_F(credentials_test, are_asked_for_before_they_end) {
  credential_source source({});
  give("one", 1h);
  EXPECT_EQ(source.get().key_id, "one");
  give("two", 1h);
  EXPECT_EQ(source.get().key_id, "one");
  credential_source short_lived({});
  give("three", 4min);
  EXPECT_EQ(short_lived.get().key_id, "three");
  std::this_thread::sleep_for(1'100ms); // that it was long ago
  server.misbehave(misbehaviour::http_500);
  EXPECT_EQ(short_lived.get().key_id, "three");
  server.misbehave(misbehaviour::none);
  give("four", 1h);
  EXPECT_EQ(short_lived.get().key_id, "three") << "the server was asked just now";
  std::this_thread::sleep_for(1'100ms);
  EXPECT_EQ(short_lived.get().key_id, "four");
}

// given: an endpoint that is this machine, by its address or its name, for who may ask any bucket / expected: a job
// that names it is refused before anything is dialled, unless this process's user names it, too: --data, the
// environment
TEST_F(credentials_test, a_jobs_endpoint_is_not_this_machine) {
  web_double store([](const auto&) { return web_double::make(200, "<ListBucketResult/>"); });
  setenv("AWS_ACCESS_KEY_ID", "k", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
  const auto problem = [](const std::string& endpoint, std::vector<std::filesystem::path> places) {
    return thrown_by<store_error>([&] {
      open_store("s3://bucket", {.endpoint = endpoint, .pace = {.attempts = 1}, .places = std::move(places)})->list();
    });
  };
  for (const auto* host : {"127.0.0.1", "localhost"})
    for (const auto& places : {std::vector<std::filesystem::path>{"/", "s3://", "https://", "http://"},
                               {"s3://bucket", "http://127.0.0.1:1"}})
      EXPECT_THAT(problem(store.url(host), places), HasSubstr("is this machine, or on its link")) << host;
  EXPECT_THAT(problem("http://169.254.169.254", {"s3://"}), HasSubstr("is this machine, or on its link"));
  EXPECT_EQ(store.connections(), 0u);
  const auto endpoint = store.url("127.0.0.1");
  EXPECT_EQ(problem(endpoint, {}), "");
  EXPECT_EQ(problem(endpoint, {"s3://", endpoint + "/"}), "");
  setenv("AWS_ENDPOINT_URL", endpoint.c_str(), 1);
  EXPECT_EQ(problem(endpoint, {"s3://"}), "");
  EXPECT_EQ(problem("", {"s3://"}), "");
  for (const auto* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"})
    unsetenv(name);
}

// given: a session's token, an endpoint without TLS / expected: if a job names it, it is not asked; if this machine's
// environment does, it is; for ever keys have no token to lose
TEST_F(credentials_test, a_token_goes_to_no_jobs_endpoint_in_the_clear) {
  std::string token;
  web_double store([&](const auto& x) {
    token = std::string(x["x-amz-security-token"]);
    return web_double::make(200, "<ListBucketResult/>");
  });
  const auto problem = [](const std::string& endpoint) {
    return thrown_by<store_error>([&] { open_store("s3://bucket", {.endpoint = endpoint})->list(); });
  };
  setenv("AWS_ACCESS_KEY_ID", "k", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
  setenv("AWS_SESSION_TOKEN", "secret", 1);
  const auto endpoint = store.url("127.0.0.1");
  EXPECT_THAT(problem(endpoint), HasSubstr("whose token is not sent to " + endpoint));
  EXPECT_EQ(store.connections(), 0u);
  setenv("AWS_ENDPOINT_URL", endpoint.c_str(), 1);
  EXPECT_EQ(problem(""), "");
  EXPECT_EQ(token, "secret");
  for (const auto* name : {"AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"})
    unsetenv(name);
  EXPECT_EQ(problem(endpoint), "");
  EXPECT_EQ(token, "");
  for (const auto* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})
    unsetenv(name);
}

// given: credentials that a server refuses / expected: read again, unless that was just done
TEST_F(credentials_test, that_are_refused_are_read_again) {
  credential_source source({});
  give("one", 1h);
  const auto one = source.get();
  EXPECT_FALSE(source.refuse(one)) << "they have just been read";
  give("two", 1h);
  std::this_thread::sleep_for(1'100ms); // that it was long ago
  EXPECT_TRUE(source.refuse(one));
  EXPECT_EQ(source.get().key_id, "two");
  EXPECT_TRUE(source.refuse({"another", "s2", ""}));
}

} // namespace
} // namespace parcae
