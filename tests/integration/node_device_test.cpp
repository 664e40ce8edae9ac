// What nodes compute on, as processes see it.

#include "gpu/device/cuda_library.hpp"
#include "planner/cost/profile.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/eventually.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace parcae {
namespace {

class node_device : public cluster_test {};

double seconds_of_children() {
  rusage x{};
  getrusage(RUSAGE_CHILDREN, &x);
  return static_cast<double>(x.ru_utime.tv_sec + x.ru_stime.tv_sec) +
         static_cast<double>(x.ru_utime.tv_usec + x.ru_stime.tv_usec) / 1e6;
}

// given: no driver / expected: one line that says so and status 1, after less than a second (of processor time: others
// may use this machine as well)
TEST_F(node_device, a_gpu_is_missed_at_once) {
  if (ask_driver().devices > 0)
    GTEST_SKIP() << "this machine has a GPU";
  const auto before = seconds_of_children();
  const auto x =
      run_program({sibling_program("parcae-node"), "--device", "cuda", "--manager", to_string(cluster->where())});
  EXPECT_LT(seconds_of_children() - before, 1);
  EXPECT_EQ(x.status, 1);
  EXPECT_THAT(x.error, HasSubstr("parcae-node: there is no NVIDIA driver: libcuda.so.1 is not found"));
  EXPECT_EQ(std::ranges::count(x.error, '\n'), 1);
}

// given: a driver that notes, when it is first called, which children the process has / expected: one, the guardian,
// into which nothing of CUDA came: it was made before CUDA was opened
TEST_F(node_device, the_guardian_is_older_than_cuda) {
  const scratch_folder folder("driver");
  const auto log = folder.path() / "log";
  const auto x =
      run_program({"/usr/bin/env", "LD_LIBRARY_PATH=" PARCAE_STAND_IN_DRIVER, "STAND_IN_DRIVER_LOG=" + log.string(),
                   sibling_program("parcae-node"), "--device", "cuda", "--manager", to_string(cluster->where())});
  EXPECT_EQ(x.status, 1) << "it is no real driver";
  std::ifstream file(log);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "without\n") << x.error;
}

/// What a node with --device auto says of where it computes, which goes on then.
std::string said_of_place(const std::string& driver, const std::string& more) {
  const scratch_folder folder("node");
  const auto out = folder.path() / "out", err = folder.path() / "err";
  const child_process node({{"/usr/bin/env", "LD_LIBRARY_PATH=" + driver, more, sibling_program("parcae-node"),
                             "--device", "auto", "--manager", "127.0.0.1:1"},
                            out,
                            err});
  std::string line;
  EXPECT_TRUE(eventually([&] {
    std::ifstream file(err);
    while (std::getline(file, line))
      if (const auto at = line.find("computes on "); at != std::string::npos && !file.eof()) {
        line.erase(0, at);
        return true;
      }
    return false;
  }));
  return line;
}

// given: --device auto, and a driver that is too old, or shows none of its GPUs as the environment says / expected: the
// processor, with one line that says so and what would help
TEST_F(node_device, auto_says_why_it_is_the_processor) {
  EXPECT_EQ(said_of_place(PARCAE_OLD_DRIVER, "NOTHING=0"),
            "computes on the processor: the NVIDIA driver is for CUDA 12.8, and CUDA 13 needs R580 or newer");
  EXPECT_EQ(said_of_place(PARCAE_STAND_IN_DRIVER, "CUDA_VISIBLE_DEVICES=GPU-7"),
            "computes on the processor: the NVIDIA driver finds no GPU: CUDA_ERROR_NO_DEVICE (CUDA_VISIBLE_DEVICES is "
            "\"GPU-7\")");
}

// given: --device auto where there is no driver / expected: a worker that trains, without any library of CUDA's but
// those that LibTorch's own for processors is linked to
TEST_F(node_device, auto_brings_no_cuda_library) {
  if (ask_driver().devices > 0)
    GTEST_SKIP() << "this machine has a GPU";
  cluster->start_node("a", {"--device", "auto"});
  wait_for_workers(1);
  std::ifstream maps("/proc/" + std::to_string(cluster->node("a").pid()) + "/maps");
  const std::string mapped(std::istreambuf_iterator<char>(maps), {});
  EXPECT_THAT(mapped, HasSubstr("libtorch_cpu.so"));
  for (const auto* name : {"libcuda.so", "libnvidia-ml", "libtorch_cuda", "libc10_cuda", "libparcae_cuda", "libcublas",
                           "libcudnn", "libnccl"})
    EXPECT_EQ(mapped.find(name), std::string::npos) << name;
}

/// Copies of the programs, beside a plug-in whose GPUs are the processor.
class node_on_gpu : public cluster_test {
protected:
  void SetUp() override {
    std::filesystem::create_directory(programs);
    for (const auto* name : {"parcae", "parcae-node"})
      std::filesystem::copy_file(sibling_program(name), programs / name);
    std::filesystem::copy_file(PARCAE_STAND_IN_PLUGIN, programs / "libparcae_cuda.so");
  }

  ~node_on_gpu() override {
    for (const auto* gpu : {"GPU-0", "GPU-1"})
      std::filesystem::remove("/tmp/parcae-" + (gpu + name) + ".lock");
  }

  /// `more`: for the environment.
  std::vector<std::string> command(const std::vector<std::string>& more, const std::vector<std::string>& program) {
    std::vector<std::string> x{"/usr/bin/env", "LD_LIBRARY_PATH=" PARCAE_STAND_IN_DRIVER ":" PARCAE_STAND_IN_NVML,
                               "STAND_IN_NAME=" + name, "STAND_IN_XID=" + xid.string()};
    x.insert(x.end(), more.begin(), more.end());
    x.insert(x.end(), program.begin(), program.end());
    return x;
  }

  const std::filesystem::path programs = folder.path() / "bin", xid = folder.path() / "xid";
  const std::string name = "-" + std::to_string(getpid()); ///< others test here, too
};

// given: a node on a GPU, another one for the same, and the driver's word that it has fallen off the bus / expected: it
// is in the status; the second is refused in words; the first ends by SIGKILL, and its instance is lost
TEST_F(node_on_gpu, has_it_alone_and_goes_with_it) {
  cluster.emplace(programs, folder.path(),
                  cluster_ground{.bundles = {}, .before = [this](const auto&) { return command({}, {}); }});
  cluster->tell_machine();
  cluster->start_node("a", {"--device", "cuda:1"});
  cluster->wait_for("the GPU's state", limit, [](const status_reply& x) {
    return to_string(x).find("\n  cuda:1: 96 % busy, 65 °C") != std::string::npos;
  });
  const auto second = run_program(command({}, {programs / "parcae-node", "--device", "cuda:1", "--cloud", "none",
                                               "--manager", to_string(cluster->where())}));
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.error, HasSubstr("another node computes on cuda:1 (GPU-1" + name + ") already: give each"));
  write("xid", "79");
  EXPECT_EQ(cluster->node("a").wait(limit), 128 + SIGKILL);
  EXPECT_THAT(content(folder.path() / "a.log"), HasSubstr("cuda:1 is lost: the driver reports XID 79"));
  cluster->wait_for("a's loss", limit,
                    [](const status_reply& x) { return x.instances.size() == 1 && x.instances[0].state == "lost"; });
}

// given: a GPU with 27 MiB for tensors, of a job that needs 25 with one pipeline, and 28 with each of two / expected:
// its profile is without the latter
TEST_F(node_on_gpu, is_profiled_with_its_memory) {
  const auto job = write(
      "job.toml", "[job]\nsamples = 8000\nreproducible = false\n[model]\nkind = \"mlp\"\nlayers = 2\nwidth = 512\n"
                  "sequence = 64\n[data]\npath = \"/usr/share/common-licenses/GPL-3\"\n"
                  "[batch]\nglobal = 4\nmicro = 2\n[parallel]\nmax_depth = 1\n");
  const auto profile = folder.path() / "profile.json";
  const auto x = run_program(command({"STAND_IN_PLACE=cpu", "STAND_IN_BYTES=" + std::to_string((1 << 30) + (27 << 20))},
                                     {programs / "parcae", "profile", job, "--output", profile, "--device", "cuda:0",
                                      "--duration", "100ms", "--changes", "0", "--slots", "2"}));
  ASSERT_EQ(x.status, 0) << x.error;
  EXPECT_GT(parse_profile(read_file(profile)).throughput({1, 1}), 0);
  EXPECT_EQ(parse_profile(read_file(profile)).throughput({2, 1}), 0);
}

} // namespace
} // namespace parcae
