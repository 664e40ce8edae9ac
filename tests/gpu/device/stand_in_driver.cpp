// A driver's library that finds as many GPUs as DEVICES says, and is for the CUDA that CAN says.

// It heeds CUDA_VISIBLE_DEVICES as the real one does, when it is initialised: names GPU-0 and so on, up to the first
// that is not there.

#include <cstdlib>
#include <cstring>

namespace {

int devices = 0;

int visible() {
  const auto* x = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!x)
    return DEVICES;
  int result = 0;
  for (; x && std::strncmp(x, "GPU-", 4) == 0 && std::atoi(x + 4) < DEVICES; ++result)
    x = std::strchr(x, ',') ? std::strchr(x, ',') + 1 : nullptr;
  return result;
}

} // namespace

extern "C" {
int cuInit(unsigned flags) {
  devices = visible();
  return flags != 0 ? 1 : devices > 0 ? 0 : 100;
}
int cuDriverGetVersion(int* can) {
  *can = CAN;
  return 0;
}
int cuDeviceTotalMem_v2(unsigned long* bytes, int device) {
  *bytes = (device + 40ul) << 30;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = devices;
  return 0;
}
int cuGetErrorName(int error, const char** text) {
  *text = error == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
}
