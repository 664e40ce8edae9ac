// The plug-in as it was built: loaded with all that it is linked to, on a machine with a GPU or without.

#include "gpu/device/cuda_library.hpp"
#include "gpu/training/exact_settings.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/AllocatorConfig.h>

#include <netinet/in.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>

namespace parcae {
namespace {

// given: no GPU / expected: LibTorch's CUDA library is there, and the error is the driver's
TEST(plugin, is_loaded) {
  const cuda_library library(PARCAE_CUDA_LIBRARY, nccl_reach::host);
  std::ifstream maps("/proc/self/maps");
  const std::string mapped(std::istreambuf_iterator<char>(maps), {});
  EXPECT_THAT(mapped, HasSubstr("/libtorch_cuda.so"));
  EXPECT_THAT(mapped, HasSubstr("/libc10_cuda.so"));
  if (ask_driver().devices > 0) {
    const auto gpu = library.open(0);
    EXPECT_EQ(gpu->facts().type, "cuda");
    EXPECT_GT(gpu->facts().bytes, 1u << 30);
    return;
  }
  EXPECT_THAT(thrown_by<device_error>([&] { library.open(0); }), HasSubstr("driver"));
}

// given: an environment in which nothing is said / expected: a queue of CUDA's for each stream that there may be, and
// LibTorch's segments grow, as its own settings say then; what was said stays
TEST(plugin, says_what_cuda_reads_once) {
  const auto value_of = [](const char* name, const char* before) {
    before ? setenv(name, before, 1) : unsetenv(name);
    const cuda_library library(PARCAE_CUDA_LIBRARY, nccl_reach::host);
    return std::string(std::getenv(name));
  };
  EXPECT_EQ(value_of("CUDA_DEVICE_MAX_CONNECTIONS", nullptr), "32");
  EXPECT_EQ(value_of("CUDA_DEVICE_MAX_CONNECTIONS", "1"), "1");
  EXPECT_EQ(value_of("PYTORCH_ALLOC_CONF", nullptr), "expandable_segments:True");
  EXPECT_TRUE(c10::CachingAllocator::AcceleratorAllocatorConfig::use_expandable_segments());
}

// given: LibTorch's exact settings were made before / expected: it finds CUDA all the same
TEST(plugin, comes_after_exact_settings) {
  make_libtorch_exact();
  const cuda_library library(PARCAE_CUDA_LIBRARY, nccl_reach::host);
  EXPECT_TRUE(at::detail::getCUDAHooks().compiledWithCuDNN());
}

// given: no GPU / expected: NCCL is there, in the version that was compiled against; making an id works, and with it a
// communicator does not, which is said; nobody beyond this host can connect to what listens with an id
TEST(plugin, has_nccl) {
  const cuda_library library(PARCAE_CUDA_LIBRARY, nccl_reach::host);
  EXPECT_STREQ(std::getenv("NCCL_RAS_ENABLE"), "0");
  unsetenv("NCCL_NVLS_ENABLE");
  const auto nccl = library.open_nccl(0);
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  nccl_id id{}, other{};
  ASSERT_EQ(nccl->make_id(id), nccl_result::success) << nccl->last_error(nullptr);
  ASSERT_EQ(nccl->make_id(other), nccl_result::success);
  EXPECT_NE(id, other);
  // NCCL's bootstrap: a number of 64 bits, then the address that it listens on.
  sockaddr_in where{};
  std::memcpy(&where, id.data() + sizeof(std::uint64_t), sizeof where);
  ASSERT_EQ(where.sin_family, AF_INET);
  EXPECT_EQ(ntohl(where.sin_addr.s_addr), INADDR_LOOPBACK);
  if (ask_driver().devices > 0)
    return;
  nccl_handle* made = nullptr;
  EXPECT_EQ(nccl->begin(made, 2, id, 0), nccl_result::cuda_error);
  EXPECT_EQ(made, nullptr);
}

// given: what ptxas said / expected: the same kernels for each GPU, none with a stack frame or a spilled register
TEST(plugin, kernels_stay_in_registers) {
  std::ifstream file(PARCAE_PTXAS);
  std::map<std::string, int> kernels;
  int good = 0;
  const std::regex entry("Compiling entry function '.*' for '(sm_[0-9]+)'"), frame("[0-9]+ bytes stack frame");
  std::smatch found;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_search(line, found, entry))
      ++kernels[found[1]];
    if (std::regex_search(line, frame)) {
      EXPECT_THAT(line, HasSubstr(" 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
      ++good;
    }
  }
  const auto each = kernels["sm_90"];
  EXPECT_GE(each, 15);
  EXPECT_EQ(kernels, (std::map<std::string, int>{{"sm_75", each}, {"sm_80", each}, {"sm_90", each}}));
  EXPECT_EQ(good, 3 * each);
}

// given: the kernels as PTX / expected: each but those of the norm, whose lanes lie side by side, reads and writes
// arrays 16 bytes at a time; one that draws numbers reads none
TEST(plugin, kernels_move_16_bytes_at_once) {
  std::ifstream file(PARCAE_PTX);
  const std::regex entry(R"(\.entry (\w+)\()"), read(R"(ld\.global\.\S*v4\.\S*32)"),
      written(R"(st\.global\.\S*v[24]\.)");
  std::map<std::string, std::pair<int, int>> kernels;
  std::string name;
  std::smatch found;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_search(line, found, entry))
      kernels[name = found[1]];
    if (std::regex_search(line, read))
      ++kernels.at(name).first;
    if (std::regex_search(line, written))
      ++kernels.at(name).second;
  }
  EXPECT_GE(kernels.size(), 15u);
  for (const auto& [kernel, times] : kernels) {
    if (kernel.find("sum_chunks") != std::string::npos || kernel.find("cached_rows") != std::string::npos)
      continue; // neighbouring threads read neighbours
    const auto draws =
        kernel.find("normal_values") != std::string::npos || kernel.find("uniform_values") != std::string::npos;
    const auto deep =
        kernel.find("addition_in_order") != std::string::npos && kernel.find("Li16E") != std::string::npos;
    const auto widens = kernel.find("conversionIf") != std::string::npos; // 8 bytes become 16
    EXPECT_EQ(times.first > 0, !draws && !deep && !widens) << kernel;
    EXPECT_EQ(times.second > 0, !deep) << kernel; // 16 values at once: one by one
  }
}

} // namespace
} // namespace parcae
