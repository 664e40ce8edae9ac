// A management library (NVML) that knows GPU-0 and GPU-1, and MIG-2, a slice of the latter, of which itself it tells
// nothing; whatever follows these names. Functions, numbers and order of fields as NVIDIA's documentation has them.

#include "tests/gpu/device/stand_in_nvml.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

struct nvmlDevice_st {
  int number;
};
struct nvmlEventSet_st {
  bool hears;
};
using nvmlDevice_t = nvmlDevice_st*;
using nvmlEventSet_t = nvmlEventSet_st*;

struct nvmlUtilization_t {
  unsigned gpu, memory;
};

struct nvmlEventData_t {
  nvmlDevice_t device;
  unsigned long long eventType, eventData;
  unsigned gpuInstanceId, computeInstanceId;
};

namespace {

nvmlDevice_st devices[3] = {{0}, {1}, {2}};
nvmlEventSet_st events{};
constexpr int timeout = 10, not_supported = 3, not_found = 6;

} // namespace

extern "C" {
parcae::stand_in_nvml_answers stand_in_nvml;

static int status_of(nvmlDevice_t x) {
  while (stand_in_nvml.hangs)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return x->number == 2 ? not_supported : x->number == 1 ? stand_in_nvml.of_gpu_1.load() : 0;
}

int nvmlInit_v2() {
  stand_in_nvml.users += stand_in_nvml.to_initialise == 0;
  return stand_in_nvml.to_initialise;
}
int nvmlShutdown() {
  --stand_in_nvml.users;
  return 0;
}
const char* nvmlErrorString(int status) {
  switch (status) {
  case not_found:
    return "Not Found";
  case 9:
    return "Driver Not Loaded";
  case 15:
    return "GPU is lost";
  case 16:
    return "GPU requires reset";
  default:
    return "Unknown Error";
  }
}
int nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* to) {
  const char* names[] = {"GPU-0", "GPU-1", "MIG-2"};
  for (int i = 0; i < 3; ++i)
    if (std::strncmp(uuid, names[i], std::strlen(names[i])) == 0) {
      *to = &devices[i];
      return 0;
    }
  return not_found;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t slice, nvmlDevice_t* to) {
  *to = &devices[1];
  return slice->number == 2 ? 0 : not_supported;
}
int nvmlDeviceGetUtilizationRates(nvmlDevice_t x, nvmlUtilization_t* to) {
  *to = {97u - static_cast<unsigned>(x->number), 12};
  return status_of(x);
}
int nvmlDeviceGetTemperature(nvmlDevice_t x, int sensor, unsigned* to) {
  *to = 64u + static_cast<unsigned>(x->number);
  return sensor == 0 ? status_of(x) : not_supported;
}
int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t x, unsigned long long* to) {
  *to = stand_in_nvml.reasons;
  return status_of(x);
}
int nvmlDeviceGetTotalEccErrors(nvmlDevice_t x, int kind, int counter, unsigned long long* to) {
  if (stand_in_nvml.to_errors != 0)
    return stand_in_nvml.to_errors;
  *to = x->number == 0 ? 0 : kind == 1 ? stand_in_nvml.uncorrected.load() : 3;
  return counter == 0 ? status_of(x) : not_supported;
}
int nvmlEventSetCreate(nvmlEventSet_t* to) {
  *to = &events;
  events.hears = false;
  return 0;
}
int nvmlDeviceRegisterEvents(nvmlDevice_t, unsigned long long types, nvmlEventSet_t to) {
  to->hears = stand_in_nvml.to_events == 0 && (types & 8) != 0;
  return stand_in_nvml.to_events;
}
/// Other processes say it in the file that STAND_IN_XID names.
static unsigned long long next_xid() {
  unsigned long long x = 0;
  if (const auto* file = std::getenv("STAND_IN_XID"))
    std::ifstream(file) >> x;
  return x != 0 ? x : stand_in_nvml.xid.exchange(0);
}
int nvmlEventSetWait_v2(nvmlEventSet_t from, nvmlEventData_t* to, unsigned ms) {
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (const auto xid = from->hears ? next_xid() : 0; xid != 0) {
      *to = {&devices[1], stand_in_nvml.type, xid, 0xFFFFFFFF, 0xFFFFFFFF};
      return 0;
    }
  return timeout;
}
}
