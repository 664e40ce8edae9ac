// How GPUs are, and when one is lost, by a stand-in for NVIDIA's management library that is opened as the real one is.

#include "gpu/device/gpu_health.hpp"
#include "tests/gpu/device/stand_in_nvml.hpp"
#include "tests/support/eventually.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class gpu_health_test : public testing::Test {
protected:
  static stand_in_nvml_answers& nvml() {
    return *static_cast<stand_in_nvml_answers*>(dlsym(dlopen("libnvidia-ml.so.1", RTLD_NOW), "stand_in_nvml"));
  }

  gpu_health_test() {
    auto& x = nvml();
    x.to_initialise = x.to_events = x.of_gpu_1 = x.to_errors = 0;
    x.hangs = false;
    x.reasons = x.xid = 0;
    x.uncorrected = 1;
    x.type = 8;
  }
  ~gpu_health_test() override {
    health.reset();
    EXPECT_EQ(nvml().users, 0) << "NVML is still in use";
  }

  /// GPUs 0 and 1, by default.
  void start(std::chrono::milliseconds look_each = 5ms,
             std::vector<watched_gpu> gpus = {{"cuda:0", "GPU-0"}, {"cuda:1", "GPU-1"}}) {
    said = {};
    health.emplace(
        std::move(gpus),
        [this](const std::string& x) {
          ++calls;
          said.set_value(x);
        },
        look_each);
  }
  /// Once it was looked.
  std::vector<gpu_state> seen() {
    eventually([&] { return health->now().front().celsius >= 0 || !health->now().front().problem.empty(); });
    return health->now();
  }
  /// What `lost` was told.
  std::string loss() {
    auto told = said.get_future();
    return told.wait_for(5s) == std::future_status::ready ? told.get() : "not lost";
  }

  std::promise<std::string> said;
  std::atomic<int> calls = 0;
  std::optional<gpu_health> health; ///< last: it calls what uses the above
};

// given: two GPUs, one of which has had errors of its memory, and is slowed by heat / expected: so it is said; of one
// that NVML does not know, why; of a MIG slice its card is told of
TEST_F(gpu_health_test, says_how_each_is) {
  nvml().reasons = 0x40;
  start(5ms, {{"cuda:0", "GPU-0"}, {"cuda:1", "GPU-1"}, {"cuda:2", "GPU-7"}, {"cuda:3", "GPU-2"}});
  seen();
  eventually([&] { return health->now()[3].celsius >= 0; });
  const auto all = health->now();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0], (gpu_state{"cuda:0", 97, 64, "temperature", 0, 0, 0, ""}));
  EXPECT_EQ(all[1], (gpu_state{"cuda:1", 96, 65, "temperature", 3, 1, 0, ""}));
  EXPECT_EQ(all[2], (gpu_state{"cuda:2", -1, -1, "", -1, -1, 0, "not known: NVML says: Not Found"}));
  EXPECT_EQ(all[3], (gpu_state{"cuda:3", 96, 65, "temperature", 3, 1, 0, ""}));
  EXPECT_EQ(calls, 0) << "an error before the node began is none of its own";
}

// given: reasons of clocks / expected: words for those that lower them against one's will
TEST_F(gpu_health_test, has_words_for_what_slows) {
  const std::pair<unsigned long long, const char*> table[] = {
      {0x01 | 0x02 | 0x10 | 0x100, ""},
      {0x04, "power"},
      {0x20, "temperature"},
      {0x08, "hardware"},
      {0x08 | 0x80, "power, hardware"},
      {0x20 | 0x04 | 0x01, "temperature, power"},
  };
  for (const auto& [reasons, words] : table) {
    nvml().reasons = reasons;
    start();
    EXPECT_EQ(seen().front().throttled, words) << reasons;
    health.reset();
  }
}

// given: a GPU without ECC / expected: it is not said that there were no errors
TEST_F(gpu_health_test, knows_what_is_not_known) {
  nvml().to_errors = 3;
  start();
  EXPECT_EQ(seen().front(), (gpu_state{"cuda:0", 97, 64, "", -1, -1, 0, ""}));
}

// given: NVML that cannot be used / expected: one line for all GPUs; none is lost for it
TEST_F(gpu_health_test, says_why_nothing_is_known) {
  nvml().to_initialise = 9;
  start();
  EXPECT_THAT(seen(), ElementsAre(gpu_state{"GPUs", -1, -1, "", -1, -1, 0, "not known: NVML says: Driver Not Loaded"}));
  health.reset();
  EXPECT_EQ(calls, 0);
}

// given: XIDs that mean that a GPU is of no use, and an error of two bits / expected: it is lost at once, long before
// the next look, and only once
TEST_F(gpu_health_test, loses_one_that_the_driver_reports) {
  for (const auto xid : {48ull, 79ull, 94ull, 95ull, 140ull}) {
    start(1h);
    nvml().xid = xid;
    EXPECT_EQ(loss(), "cuda:1 is lost: the driver reports XID " + std::to_string(xid));
    nvml().xid = xid;
    health.reset();
    nvml().xid = 0;
  }
  EXPECT_EQ(calls, 5);
  start(1h);
  nvml().type = 2;
  nvml().xid = 1;
  EXPECT_EQ(loss(), "cuda:1 is lost: an error in its memory could not be corrected");
}

// given: XIDs of programs, and one of memory that was set right / expected: they are shown, and nothing is lost
TEST_F(gpu_health_test, shows_errors_that_lose_nothing) {
  start();
  for (const auto xid : {13ull, 31ull, 43ull, 63ull}) {
    nvml().xid = xid;
    eventually([&] { return health->now()[1].xid == xid; });
    EXPECT_EQ(health->now()[0].xid, 0u);
  }
  EXPECT_EQ(seen()[1], (gpu_state{"cuda:1", 96, 65, "", 3, 1, 63, ""}));
  health.reset();
  EXPECT_EQ(calls, 0);
}

// given: a driver that reports nothing, as in some virtual machines; a GPU that it cannot reach, one that has to be
// reset, one with an error more that was not corrected / expected: each is lost at the next look
TEST_F(gpu_health_test, loses_one_at_a_look) {
  nvml().to_events = 3;
  for (const auto& [status, words] : {std::pair(15, "GPU is lost"), std::pair(16, "GPU requires reset")}) {
    start();
    seen();
    nvml().of_gpu_1 = status;
    EXPECT_EQ(loss(), std::string("cuda:1 is lost: NVML says: ") + words);
    health.reset();
    nvml().of_gpu_1 = 0;
  }
  start();
  eventually([&] { return health->now()[1].uncorrected == 1; });
  nvml().uncorrected = 2;
  EXPECT_EQ(loss(), "cuda:1 is lost: an error in its memory could not be corrected");
  EXPECT_EQ(calls, 3);
}

// given: NVML that does not return / expected: what it said before is told at once; the end waits a second for it, and
// nothing is lost afterwards
TEST_F(gpu_health_test, is_not_held_up) {
  start();
  seen();
  nvml().hangs = true;
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(health->now()[0].celsius, 64);
  const auto before = std::chrono::steady_clock::now();
  health.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 3s);
  EXPECT_EQ(nvml().users, 1);
  nvml().of_gpu_1 = 15;
  nvml().hangs = false;
  eventually([&] { return nvml().users == 0; });
  EXPECT_EQ(calls, 0);
}

} // namespace
} // namespace parcae
