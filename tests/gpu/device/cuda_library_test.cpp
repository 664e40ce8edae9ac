// What --device may say, and what is said where there is no driver, no GPU or no plug-in. Drivers are stand-ins
// (stand_in_driver.c), each in a process of its own.

#include "gpu/device/cuda_library.hpp"
#include "gpu/device/gpu_health.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace parcae {
namespace {

using ::testing::HasSubstr;
using kind = device_choice::kind;

// given: text / expected: the choice
TEST(device_choice, is_read) {
  const std::pair<const char*, device_choice> table[] = {
      {"cpu", {kind::cpu, {}}},      {"auto", {kind::automatic, {}}},    {"cuda", {kind::cuda, {}}},
      {"cuda:0", {kind::cuda, {0}}}, {"cuda:3,1", {kind::cuda, {1, 3}}},
  };
  for (const auto& [text, expected] : table) {
    const auto x = parse_device_choice(text);
    EXPECT_EQ(x.what, expected.what) << text;
    EXPECT_EQ(x.numbers, expected.numbers) << text;
    EXPECT_EQ(x.names, "");
  }
  const auto named = parse_device_choice("cuda:GPU-f0f1-a,MIG-GPU-f0/1/0");
  EXPECT_EQ(named.names, "GPU-f0f1-a,MIG-GPU-f0/1/0");
  EXPECT_TRUE(named.numbers.empty());
}

TEST(device_choice, nonsense_is_refused) {
  for (const auto* text :
       {"", "gpu", "CPU", "cuda:", "cuda:,", "cuda:1,", "cuda:-1", "cuda: 1", "cuda:1 ", "cuda:1;2", "cuda:99999999999",
        "cuda:1,1", "cuda:0x1", "cpu:0", "cuda:GPU-", "cuda:GPU-a,", "cuda:GPU-a,1", "cuda:GPU-a b", "cuda:gpu-a"})
    try {
      parse_device_choice(text);
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(), HasSubstr("\"" + std::string(text) + "\""));
    }
}

std::string problem_of(const char* choice, const std::filesystem::path& file = "/nowhere/libparcae_cuda.so") {
  try {
    return std::to_string(open_gpus(parse_device_choice(choice), file, nccl_reach::host).size()) + " opened";
  } catch (const device_error& e) {
    return e.what();
  }
}

/// PARCAE_DRIVER: what the stand-in on the library path is; none: there is no driver.
class cuda_driver : public testing::Test {
protected:
  std::string driver() const {
    const auto* x = std::getenv("PARCAE_DRIVER");
    return x ? x : "none";
  }
};

// given: the driver that counts two GPUs, and what is named, in a process of its own / expected: the driver finds it,
// or it is said what is not there; what the environment allows is not widened
TEST_F(cuda_driver, heeds_names) {
  const auto said = [](const char* visible, const char* choice) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    if (fork() == 0) { // the driver reads the environment once
      if (visible)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
      const auto text = problem_of(choice);
      _exit(write(ends[1], text.data(), text.size()) < 0);
    }
    close(ends[1]);
    std::string result(1000, ' ');
    result.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(ends[0], result.data(), result.size()))));
    close(ends[0]);
    wait(nullptr);
    return result;
  };
  EXPECT_THAT(said(nullptr, "cuda:GPU-7"), HasSubstr("NVIDIA driver"));
  if (driver() != "two")
    return;
  const auto found = HasSubstr("libparcae_cuda.so is not there"); // only then it is looked for
  EXPECT_THAT(said(nullptr, "cuda:GPU-1,GPU-0"), found);
  EXPECT_THAT(said("GPU-1", "cuda:GPU-1"), found);
  EXPECT_THAT(said("GPU-1", "cuda:0"), found);
  EXPECT_THAT(said(nullptr, "cuda:GPU-1,GPU-7"),
              HasSubstr("of the 2 GPUs in GPU-1,GPU-7 the driver finds the first 1 only"));
  EXPECT_THAT(said(nullptr, "cuda:GPU-7"),
              HasSubstr("finds no GPU: CUDA_ERROR_NO_DEVICE (CUDA_VISIBLE_DEVICES is \"GPU-7\")"));
  EXPECT_THAT(said("GPU-1", "cuda:1"),
              HasSubstr("no GPU 1: the driver counts 1 from 0 (CUDA_VISIBLE_DEVICES is \"GPU-1\")"));
  EXPECT_THAT(said("GPU-1", "cuda:GPU-0"), HasSubstr("GPUs are chosen twice: --device says GPU-0"));
}

// given: a machine without NVIDIA's management library / expected: one line for all GPUs, which is there at once; of no
// GPUs none
TEST(gpu_health, says_that_nvml_is_not_there) {
  if (ask_driver().devices > 0)
    GTEST_SKIP() << "this machine has a GPU";
  const gpu_health two({{"cuda:0", "GPU-0"}, {"cuda:1", "GPU-1"}}, [](const std::string&) { FAIL(); });
  const auto all = two.now();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].place, "GPUs");
  EXPECT_EQ(all[0].problem, "not known: NVIDIA's management library, libnvidia-ml.so.1, is not found");
  EXPECT_TRUE(gpu_health({}, [](const std::string&) { FAIL(); }).now().empty());
}

/// Which of the named libraries are in this process.
std::string mapped(std::initializer_list<const char*> names) {
  std::ifstream maps("/proc/self/maps");
  std::string result;
  for (std::string line; std::getline(maps, line);)
    for (const auto* name : names)
      if (line.find(name) != std::string::npos)
        result += line + "\n";
  return result;
}

// given: the driver that PARCAE_DRIVER says / expected: what is missing; files that are no plug-in are named
TEST_F(cuda_driver, says_what_is_missing) {
  EXPECT_EQ(problem_of("cpu"), "0 opened");
  if (driver() == "none" && ask_driver().devices > 0)
    GTEST_SKIP() << "this machine has a GPU";
  if (driver() == "none") {
    EXPECT_THAT(problem_of("cuda"), HasSubstr("no NVIDIA driver: libcuda.so.1"));
    EXPECT_EQ(problem_of("auto"), "0 opened");
  } else if (driver() == "no_device") {
    EXPECT_THAT(problem_of("cuda"), HasSubstr("finds no GPU: CUDA_ERROR_NO_DEVICE"));
    EXPECT_EQ(problem_of("auto"), "0 opened");
  } else if (driver() == "old") {
    EXPECT_THAT(problem_of("cuda"), HasSubstr("the NVIDIA driver is for CUDA 12.8, and CUDA 13 needs R580 or newer"));
    EXPECT_EQ(problem_of("auto"), "0 opened");
    EXPECT_TRUE(ask_driver().is_old);
  } else if (driver() == "two") {
    EXPECT_THAT(chosen_gpus(parse_device_choice("cuda:1")), testing::ElementsAre(1));
    EXPECT_THAT(chosen_gpus(parse_device_choice("cuda")), testing::ElementsAre(0, 1));
    EXPECT_THAT(problem_of("cuda"), HasSubstr("/nowhere/libparcae_cuda.so is not there"));
    EXPECT_THAT(problem_of("cuda:0,2"), HasSubstr("no GPU 2: the driver counts 2"));
  } else {
    FAIL() << driver();
  }
  // The driver is asked, nothing else is loaded.
  EXPECT_EQ(mapped({"libtorch_cuda", "libc10_cuda", "libcublas", "libcudnn", "libnccl", "libparcae_cuda"}), "");
  if (driver() == "none") {
    EXPECT_EQ(mapped({"libcuda.so"}), "");
  }
  if (driver() == "two") {
    const auto file = std::filesystem::path(testing::TempDir()) / "no_plug_in.so";
    std::ofstream(file) << "text";
    EXPECT_THAT(problem_of("cuda", file), HasSubstr(file.string()));
    EXPECT_THAT(problem_of("cuda", std::getenv("PARCAE_OTHER_LIBRARY")), HasSubstr("of another build"));
  }
}

} // namespace
} // namespace parcae
