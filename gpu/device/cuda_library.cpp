#include "gpu/device/cuda_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <regex>
#include <type_traits>
#include <utility>

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
  const auto wrong =
      std::invalid_argument("\"" + std::string(x) + "\" is not cpu, cuda, cuda:1,3, cuda:GPU-UUID or auto");
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
  const std::string what(x.substr(prefix.size()));
  static const std::regex names("((GPU|MIG)-[0-9a-zA-Z/-]{1,100}(,(?!$)|$))+");
  if (std::regex_match(what, names)) {
    result.names = what;
    return result;
  }
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

namespace {

/// Functions of libcuda, as cuda.h has them.
struct driver_functions {
  int (*initialise)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*name)(int, const char**) = nullptr;
  int (*version)(int*) = nullptr;

  explicit driver_functions(void* library) {
    const auto find = [&](auto& x, const char* name) {
      x = reinterpret_cast<std::decay_t<decltype(x)>>(dlsym(library, name));
    };
    find(initialise, "cuInit");
    find(count, "cuDeviceGetCount");
    find(name, "cuGetErrorName");
    find(version, "cuDriverGetVersion");
  }

  bool all() const { return initialise && count && name && version; }

  std::string error(int x) const {
    const char* text = nullptr;
    name(x, &text);
    return text ? text : "error " + std::to_string(x);
  }
};

/// What the driver heeds by itself: it then counts these, in that order, up to the first that is not there.
constexpr const char* visible = "CUDA_VISIBLE_DEVICES";

} // namespace

std::string among_visible() {
  const auto* x = std::getenv(visible);
  return x ? std::string(" (") + visible + " is \"" + x + "\")" : std::string();
}

namespace {

driver_facts no_gpu(const std::string& why, bool is_old = false) {
  driver_facts result;
  result.problem = why + among_visible();
  result.is_old = is_old;
  return result;
}

} // namespace

driver_facts ask_driver() {
  const auto library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return no_gpu("there is no NVIDIA driver: libcuda.so.1 is not found");
  const driver_functions ask(library);
  if (!ask.all())
    return no_gpu("the NVIDIA driver's libcuda.so.1 is not what it should be: " + said());
  int devices = 0;
  auto status = ask.initialise(0);
  if (status == 0)
    status = ask.count(&devices);
  if (status != 0)
    return no_gpu("the NVIDIA driver finds no GPU: " + ask.error(status));
  int can = 0; // 1000 times the major version, and ten times the minor one
  if (ask.version(&can) == 0 && can < 13'000)
    return no_gpu("the NVIDIA driver is for CUDA " + std::to_string(can / 1000) + "." +
                      std::to_string(can % 1000 / 10) + ", and CUDA 13 needs R580 or newer",
                  true);
  if (devices <= 0)
    return no_gpu("the NVIDIA driver finds no GPU");
  driver_facts result;
  result.devices = static_cast<std::uint32_t>(devices);
  return result;
}

cuda_library::cuda_library(const std::filesystem::path& file, nccl_reach reach) {
  if (!std::filesystem::exists(file))
    throw device_error(file.string() + " is not there: it is built where a CUDA 13.0 toolkit is; " + how_to_install);
  ::setenv("NCCL_RAS_ENABLE", "0", 1);
  // Shapes change with every generation: fixed segments of one are fragments in the next.
  ::setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 0);
  // Each peer has streams of its own: in the 8 queues that CUDA begins with some would wait for others' work.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
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

std::vector<std::uint32_t> chosen_gpus(const device_choice& x) {
  if (x.what == device_choice::kind::cpu)
    return {};
  if (const auto* before = std::getenv(visible); !x.names.empty() && before && before != x.names)
    throw device_error("GPUs are chosen twice: --device says " + x.names + among_visible());
  if (!x.names.empty())
    ::setenv(visible, x.names.c_str(), 1);
  const auto driver = ask_driver();
  if (!driver.problem.empty()) {
    if (x.what == device_choice::kind::automatic)
      return {};
    throw device_error(driver.problem);
  }
  if (const auto named = 1 + std::ranges::count(x.names, ','); !x.names.empty() && driver.devices != named)
    throw device_error("of the " + std::to_string(named) + " GPUs in " + x.names + " the driver finds the first " +
                       std::to_string(driver.devices) + " only; of one card's MIG slices a process sees one");
  auto numbers = x.numbers;
  for (std::uint32_t i = 0; x.numbers.empty() && i < driver.devices; ++i)
    numbers.push_back(i);
  if (numbers.back() >= driver.devices)
    throw device_error("there is no GPU " + std::to_string(numbers.back()) + ": the driver counts " +
                       std::to_string(driver.devices) + " from 0" + among_visible());
  return numbers;
}

std::vector<opened_gpu> open_gpus(const device_choice& x, const std::filesystem::path& file, nccl_reach reach) {
  std::vector<opened_gpu> result;
  const auto numbers = chosen_gpus(x);
  if (numbers.empty())
    return result;
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
