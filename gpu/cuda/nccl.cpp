#include "gpu/cuda/nccl.hpp"

#include "gpu/cuda/cuda_device.hpp"
#include "protocols/values/costs.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace parcae::cuda {

namespace {

static_assert(sizeof(ncclUniqueId) == std::tuple_size_v<nccl_id>);
static_assert(static_cast<int>(nccl_result::in_progress) == ncclInProgress);
static_assert(static_cast<int>(nccl_result::remote_error) == ncclRemoteError);

nccl_result result_of(ncclResult_t x) {
  return static_cast<nccl_result>(x);
}

ncclComm_t communicator_of(nccl_handle* x) {
  return reinterpret_cast<ncclComm_t>(x);
}

class nccl_of_gpu final : public nccl_library {
public:
  explicit nccl_of_gpu(int number) : number_(number) {}

  nccl_result make_id(nccl_id& id) override {
    ncclUniqueId made;
    const auto result = ncclGetUniqueId(&made);
    std::memcpy(id.data(), &made, sizeof made);
    return result_of(result);
  }

  nccl_result begin(nccl_handle*& made, std::uint32_t ranks, const nccl_id& id, std::uint32_t rank) override {
    // Of the thread that calls: all calls are its.
    if (cudaSetDevice(number_) != cudaSuccess)
      return nccl_result::cuda_error;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = nccl_channels; // and processors of the GPU that do nothing but wait for a peer
    ncclUniqueId of;
    std::memcpy(&of, id.data(), sizeof of);
    ncclComm_t x = nullptr;
    const auto result = ncclCommInitRankConfig(&x, static_cast<int>(ranks), of, static_cast<int>(rank), &config);
    made = reinterpret_cast<nccl_handle*>(x);
    return result_of(result);
  }

  nccl_result state(nccl_handle* x) override {
    auto now = ncclSuccess;
    const auto result = ncclCommGetAsyncError(communicator_of(x), &now);
    return result_of(result == ncclSuccess ? now : result);
  }

  nccl_result start_group() override { return result_of(ncclGroupStart()); }
  nccl_result end_group() override { return result_of(ncclGroupEnd()); }

  nccl_result send(nccl_handle* x, std::uint32_t to, const void* bytes, std::size_t n, stream& on) override {
    return result_of(ncclSend(bytes, n, ncclUint8, static_cast<int>(to), communicator_of(x), handle_of(on)));
  }

  nccl_result receive(nccl_handle* x, std::uint32_t from, void* bytes, std::size_t n, stream& on) override {
    return result_of(ncclRecv(bytes, n, ncclUint8, static_cast<int>(from), communicator_of(x), handle_of(on)));
  }

  nccl_result abort(nccl_handle* x) override { return result_of(ncclCommAbort(communicator_of(x))); }

  std::string last_error(nccl_handle* x) override {
    std::string text = ncclGetLastError(communicator_of(x));
    while (!text.empty() && text.back() == '\n')
      text.pop_back();
    return text.substr(0, text.find('\n'));
  }

private:
  const int number_;
};

} // namespace

std::unique_ptr<nccl_library> make_nccl(std::uint32_t number) {
  // Multicast buffers are for collective operations, which are not used, and take some 100 MiB. Who sets it knows why.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess || version / 100 != NCCL_VERSION_CODE / 100)
    throw device_error("NCCL " + std::to_string(version) + " is there, and " + std::to_string(NCCL_VERSION_CODE) +
                       " is wanted; run ./deploy/setup --cuda");
  return std::make_unique<nccl_of_gpu>(static_cast<int>(number));
}

} // namespace parcae::cuda
