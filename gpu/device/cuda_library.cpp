#include "gpu/device/cuda_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace parcae {

namespace {

constexpr const char* how_to_install = "run ./deploy/setup --cuda";

/// What the last dl… call said, which is one line.
std::string said() {
  const auto* text = dlerror();
  return text ? text : "unknown error";
}

} // namespace

device_choice parse_device_choice(std::string_view x) {
  const auto wrong = std::invalid_argument("\"" + std::string(x) + "\" is not cpu, cuda, cuda:1,3 or auto");
  if (x == "cpu")
    return {};
  if (x == "auto")
    return {device_choice::kind::automatic, {}};
  if (x == "cuda")
    return {device_choice::kind::cuda, {}};
  constexpr std::string_view prefix = "cuda:";
  if (!x.starts_with(prefix))
    throw wrong;
  device_choice result{device_choice::kind::cuda, {}};
  for (auto rest = x.substr(prefix.size());;) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc())
      throw wrong;
    result.numbers.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty())
      break;
    if (rest.front() != ',')
      throw wrong;
    rest.remove_prefix(1);
  }
  std::ranges::sort(result.numbers);
  if (std::ranges::adjacent_find(result.numbers) != result.numbers.end())
    throw std::invalid_argument("\"" + std::string(x) + "\" names a GPU twice");
  return result;
}

driver_facts ask_driver() {
  const auto library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return {0, "there is no NVIDIA driver: libcuda.so.1 is not found"};
  const auto find = [&](const char* name) { return dlsym(library, name); };
  const auto initialise = reinterpret_cast<int (*)(unsigned)>(find("cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(find("cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(int, const char**)>(find("cuGetErrorName"));
  const auto version = reinterpret_cast<int (*)(int*)>(find("cuDriverGetVersion"));
  if (!initialise || !count || !name || !version)
    return {0, "the NVIDIA driver's libcuda.so.1 is not what it should be: " + said()};
  int devices = 0;
  auto status = initialise(0);
  if (status == 0)
    status = count(&devices);
  if (status != 0) {
    const char* text = nullptr;
    name(status, &text);
    return {0, "the NVIDIA driver finds no GPU: " + (text ? std::string(text) : "error " + std::to_string(status))};
  }
  int can = 0; // 1000 times the major version, and ten times the minor one
  if (version(&can) == 0 && can < 13'000)
    return {0,
            "the NVIDIA driver is for CUDA " + std::to_string(can / 1000) + "." + std::to_string(can % 1000 / 10) +
                ", and CUDA 13 needs R580 or newer",
            true};
  return devices > 0 ? driver_facts{static_cast<std::uint32_t>(devices), {}}
                     : driver_facts{0, "the NVIDIA driver finds no GPU"};
}

cuda_library::cuda_library(const std::filesystem::path& file, nccl_reach reach) {
  if (!std::filesystem::exists(file))
    throw device_error(file.string() + " is not there: it is built where a CUDA 13.0 toolkit is; " + how_to_install);
  ::setenv("NCCL_RAS_ENABLE", "0", 1);
  if (reach == nccl_reach::host) {
    ::setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    ::setenv("NCCL_IB_DISABLE", "1", 1);
  }
  const auto library = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!library)
    throw device_error(said() + "; " + how_to_install);
  const auto* version = static_cast<const std::uint32_t*>(dlsym(library, "parcae_cuda_version"));
  open_ = reinterpret_cast<decltype(open_)>(dlsym(library, "parcae_cuda_open"));
  open_nccl_ = reinterpret_cast<decltype(open_nccl_)>(dlsym(library, "parcae_cuda_open_nccl"));
  if (!version || !open_ || !open_nccl_ || *version != cuda_library_version)
    throw device_error(file.string() + " is of another build");
}

std::unique_ptr<device> cuda_library::open(std::uint32_t number) const {
  device* result = nullptr;
  open_(number, &result);
  return std::unique_ptr<device>(result);
}

std::unique_ptr<nccl_library> cuda_library::open_nccl(std::uint32_t number) const {
  nccl_library* result = nullptr;
  open_nccl_(number, &result);
  return std::unique_ptr<nccl_library>(result);
}

std::filesystem::path cuda_library_file() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libparcae_cuda.so";
}

std::vector<opened_gpu> open_gpus(const device_choice& x, const std::filesystem::path& file, nccl_reach reach) {
  std::vector<opened_gpu> result;
  if (x.what == device_choice::kind::cpu)
    return result;
  const auto driver = ask_driver();
  if (!driver.problem.empty()) {
    if (x.what == device_choice::kind::automatic)
      return result;
    throw device_error(driver.problem);
  }
  auto numbers = x.numbers;
  for (std::uint32_t i = 0; x.numbers.empty() && i < driver.devices; ++i)
    numbers.push_back(i);
  if (numbers.back() >= driver.devices)
    throw device_error("there is no GPU " + std::to_string(numbers.back()) + ": the driver counts " +
                       std::to_string(driver.devices) + " from 0");
  const cuda_library library(file, reach);
  for (auto number : numbers) {
    auto& opened = result.emplace_back(opened_gpu{library.open(number), nullptr});
    try {
      opened.nccl = library.open_nccl(number);
    } catch (const device_error& e) {
      opened.nccl_problem = e.what(); // it trains without
    }
  }
  return result;
}

} // namespace parcae
