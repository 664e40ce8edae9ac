#include "gpu/training/processor_facts.hpp"

#include "protocols/base/libtorch_version.hpp"

#include <torch/version.h>

#include <fstream>
#include <string_view>

namespace parcae {

static_assert(std::string_view(TORCH_VERSION) == libtorch_version);

namespace {

// The value of the first line "key : value" of /proc/cpuinfo; "unknown" if there is none.
std::string cpu_field(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    auto colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0 ||
        line.find_first_not_of(" \t", key.size()) != colon)
      continue;
    auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "unknown" : line.substr(begin);
  }
  return "unknown";
}

// What products in bfloat16 are computed with, where there is more than that: these have roundings of their own.
std::string bfloat16_units() {
  const auto flags = cpu_field("flags") + " ";
  std::string result;
  for (const auto* x : {"avx512_bf16", "amx_bf16"})
    if (flags.find(std::string(" ") + x + " ") != std::string::npos)
      result += std::string(" ") + x;
  return result;
}

// The levels that LibTorch's kernels distinguish.
const char* instruction_set() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return "AVX512";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return "AVX2";
#endif
  return "baseline";
}

} // namespace

std::string processor_facts(const std::string& device) {
  return cpu_field("vendor_id") + " family " + cpu_field("cpu family") + " model " + cpu_field("model") + " " +
         instruction_set() + bfloat16_units() + ", LibTorch " TORCH_VERSION ", " + device;
}

} // namespace parcae
