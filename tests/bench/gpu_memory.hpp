#pragma once

#include "gpu/device/device.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace parcae {

/// How much memory of a GPU nobody has, by the driver's own library: of all processes, so also of those that have just
/// died. Takes some memory itself. One thread.
class gpu_memory {
public:
  /// Throws device_error.
  explicit gpu_memory(int number) {
    int device = 0;
    void* context = nullptr;
    check(function<int(unsigned)>("cuInit")(0));
    check(function<int(int*, int)>("cuDeviceGet")(&device, number));
    check(function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device));
    check(function<int(void*)>("cuCtxSetCurrent")(context));
  }

  std::uint64_t free_bytes() const {
    std::size_t free = 0, all = 0;
    check(function<int(std::size_t*, std::size_t*)>("cuMemGetInfo_v2")(&free, &all));
    return free;
  }

private:
  template <class Signature>
  Signature* function(const char* name) const {
    auto* result = library_ ? dlsym(library_, name) : nullptr;
    if (!result)
      throw device_error("the NVIDIA driver's libcuda.so.1 is not there, or has no " + std::string(name));
    return reinterpret_cast<Signature*>(result);
  }

  static void check(int status) {
    if (status != 0)
      throw device_error("the NVIDIA driver says error " + std::to_string(status));
  }

  void* const library_ = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
};

} // namespace parcae
