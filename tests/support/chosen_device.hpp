#pragma once

// What programs that measure or try something compute on, as their --device says.

#include "gpu/device/cuda_library.hpp"

#include <stdexcept>
#include <string>

namespace parcae {

/// "cpu": null, which stands for the processor; "cuda:N": that GPU. Called once, before LibTorch is; the GPU stays open
/// to the end of the process, as LibTorch leaves there what it has. Throws device_error, std::invalid_argument.
inline device* open_device(const std::string& x) {
  auto opened = open_gpus(parse_device_choice(x), cuda_library_file(), nccl_reach::host);
  if (opened.size() > 1)
    throw std::invalid_argument("--device " + x + " names several");
  return opened.empty() ? nullptr : opened.front().on.release();
}

} // namespace parcae
