#include "gpu/device/nccl_library.hpp"

namespace parcae {

std::string render(nccl_result x) {
  switch (x) {
  case nccl_result::success:
    return "success";
  case nccl_result::cuda_error:
    return "a CUDA call failed";
  case nccl_result::system_error:
    return "a call of the system failed";
  case nccl_result::internal_error:
    return "an internal error";
  case nccl_result::invalid_argument:
    return "an invalid argument";
  case nccl_result::invalid_usage:
    return "an invalid use";
  case nccl_result::remote_error:
    return "another participant failed";
  case nccl_result::in_progress:
    return "in progress";
  }
  return "error " + std::to_string(static_cast<int>(x));
}

} // namespace parcae
