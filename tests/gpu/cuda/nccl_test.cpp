// How the plug-in asks NCCL for a communicator, over a double of NCCL, whose functions are here, and that of the CUDA
// runtime (cuda_device_test).

#include "gpu/cuda/nccl.hpp"
#include "gpu/device/device.hpp"
#include "tests/support/names.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <optional>

namespace {

/// How a communicator was asked for last.
struct asked_of_nccl {
  ncclConfig_t config;
  ncclUniqueId id;
  int ranks, rank;
  int device; ///< that the thread had chosen
};
std::optional<asked_of_nccl> asked;

} // namespace

extern "C" {
ncclResult_t ncclGetVersion(int* x) {
  *x = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* x) {
  *x = {};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  asked = {*config, id, ranks, rank, -1};
  cudaGetDevice(&asked->device);
  *made = reinterpret_cast<ncclComm_t>(&asked);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t*) {
  return ncclSystemError;
}
ncclResult_t ncclGroupStart() {
  return ncclSystemError;
}
ncclResult_t ncclGroupEnd() {
  return ncclSystemError;
}
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclRecv(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSystemError;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  return ncclSystemError;
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
}

namespace parcae {
namespace {

// given: a thread that has chosen GPU 0, and a communicator of GPU 2 / expected: it is asked for there, with eight
// channels, and the call does not wait; all else is NCCL's to choose
TEST(nccl, is_asked_for_few_channels_and_does_not_block) {
  const auto nccl = cuda::make_nccl(2);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  nccl_id id{};
  id.fill(std::byte{7});
  nccl_handle* made = nullptr;
  EXPECT_EQ(nccl->begin(made, 3, id, 1), nccl_result::in_progress);
  EXPECT_NE(made, nullptr);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->device, 2);
  EXPECT_EQ(asked->config.blocking, 0);
  EXPECT_EQ(asked->config.maxCTAs, 8);
  ncclConfig_t others = NCCL_CONFIG_INITIALIZER;
  others.blocking = 0;
  others.maxCTAs = 8;
  EXPECT_EQ(std::memcmp(&asked->config, &others, sizeof others), 0);
  EXPECT_EQ(std::pair(asked->ranks, asked->rank), std::pair(3, 1));
  EXPECT_EQ(std::memcmp(&asked->id, id.data(), sizeof asked->id), 0);
}

// given: an environment that says nothing of multicast buffers, and one that wants them / expected: there are none, but
// in the second
TEST(nccl, takes_no_multicast_buffers_unless_it_is_said) {
  unsetenv("NCCL_NVLS_ENABLE");
  cuda::make_nccl(0);
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  cuda::make_nccl(0);
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "1");
}

} // namespace
} // namespace parcae
