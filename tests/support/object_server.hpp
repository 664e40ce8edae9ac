#pragma once

// The S3 server that tests/stores/object_server started, for tests that need one; without it they are skipped.

#include "protocols/http/http.hpp"
#include "protocols/store/store.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace parcae {

/// Times for tests: the same order, but short; parts as small as S3 takes them.
inline store_pace quick_pace() {
  using namespace std::chrono_literals;
  return {.attempts = 3,
          .first_pause = 10ms,
          .longest_pause = 50ms,
          .connect = 20s,
          .idle = 20s, // what is built beside may have both cores
          .whole = 60s,
          .part_bytes = 5 << 20,
          .window_bytes = 64 * 1024};
}

/// The same for tests of what a server says nothing to: they wait that long again and again. It must not be what a
/// server needs that only is slow.
inline store_pace impatient_pace() {
  auto result = quick_pace();
  result.idle = std::chrono::seconds(2);
  return result;
}

class object_server_test : public testing::Test {
protected:
  void SetUp() override { use(PARCAE_OBJECT_SERVER); }

  /// The server that was started with this folder.
  void use(const std::string& folder) {
    std::ifstream file(folder + "/address");
    if (!std::getline(file, endpoint) || !std::getline(file, key) || !std::getline(file, secret) ||
        !std::getline(file, bucket))
      GTEST_SKIP() << "no S3 server: deploy/setup installs it, and ctest starts it";
    // Nothing of this machine's own.
    for (const auto* name : {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"})
      unsetenv(name);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_ACCESS_KEY_ID", key.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_ENDPOINT_URL", endpoint.c_str(), 1);
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    place = "s3://" + bucket + "/" + info->test_suite_name() + "." + info->name() + "-" + std::to_string(getpid()) +
            "-" + std::to_string(std::chrono::system_clock::now().time_since_epoch().count());
  }

  std::uint16_t port() const { return parse_http_url(endpoint)->server.port; }

  std::string endpoint, key, secret, bucket;
  std::string place; ///< this test's own
};

} // namespace parcae
