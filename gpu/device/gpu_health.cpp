#include "gpu/device/gpu_health.hpp"

#include "protocols/base/locks.hpp"
#include "protocols/base/text.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace parcae {

namespace {

using std::chrono::milliseconds;
using clock = std::chrono::steady_clock;

// --- what of nvml.h is used; its names are NVIDIA's, its values part of the library's binary interface

using nvml_device = struct nvmlDevice_st*;
using nvml_events = struct nvmlEventSet_st*;

struct nvml_utilization {
  unsigned gpu;    ///< percent of the last moments in which a kernel ran
  unsigned memory; ///< likewise, in which its memory was read or written
};

struct nvml_event {
  nvml_device device;
  unsigned long long type;
  unsigned long long data; ///< the XID
  unsigned gpu_instance;
  unsigned compute_instance;
};

constexpr int nvml_success = 0;
constexpr int nvml_not_found = 6;
constexpr int nvml_timeout = 10;
constexpr int nvml_gpu_is_lost = 15;
constexpr int nvml_reset_required = 16;
constexpr int nvml_of_the_gpu = 0; ///< sensor of temperature
constexpr int nvml_corrected = 0;
constexpr int nvml_uncorrected = 1;
constexpr int nvml_volatile = 0; ///< counts since the driver was loaded
constexpr unsigned long long nvml_double_bit_error = 2;
constexpr unsigned long long nvml_xid = 8;

struct nvml_functions {
  int (*initialise)() = nullptr;
  int (*end)() = nullptr;
  const char* (*error)(int) = nullptr;
  int (*find)(const char* uuid, nvml_device*) = nullptr;
  int (*card_of_slice)(nvml_device slice, nvml_device*) = nullptr;
  int (*utilization)(nvml_device, nvml_utilization*) = nullptr;
  int (*temperature)(nvml_device, int sensor, unsigned*) = nullptr;
  int (*clock_reasons)(nvml_device, unsigned long long*) = nullptr;
  int (*errors)(nvml_device, int kind, int counter, unsigned long long*) = nullptr;
  int (*make_events)(nvml_events*) = nullptr;
  int (*hear)(nvml_device, unsigned long long types, nvml_events) = nullptr;
  int (*wait)(nvml_events, nvml_event*, unsigned ms) = nullptr;

  /// "": all are there.
  std::string open() {
    auto* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); // stays
    if (!library)
      return "not known: NVIDIA's management library, libnvidia-ml.so.1, is not found";
    std::string missing;
    const auto load = [&](auto& x, const char* name) {
      x = reinterpret_cast<std::decay_t<decltype(x)>>(dlsym(library, name));
      if (!x && missing.empty())
        missing = std::string("not known: NVIDIA's management library has no ") + name;
    };
    load(initialise, "nvmlInit_v2");
    load(end, "nvmlShutdown");
    load(error, "nvmlErrorString");
    load(find, "nvmlDeviceGetHandleByUUID");
    load(card_of_slice, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    load(utilization, "nvmlDeviceGetUtilizationRates");
    load(temperature, "nvmlDeviceGetTemperature");
    load(clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    load(errors, "nvmlDeviceGetTotalEccErrors");
    load(make_events, "nvmlEventSetCreate");
    load(hear, "nvmlDeviceRegisterEvents");
    load(wait, "nvmlEventSetWait_v2");
    return missing;
  }

  std::string said(int status) const { return std::string("NVML says: ") + error(status); }
};

/// What of nvmlClocksEventReason… lowers clocks; the others are idleness and what was set.
std::string words_for(unsigned long long reasons) {
  static constexpr std::array<std::pair<unsigned long long, const char*>, 3> table{{
      {0x20 | 0x40, "temperature"}, // by software, by hardware
      {0x04 | 0x80, "power"},       // its limit, the supply
      {0x08, "hardware"},           // one of the two above, or neither
  }};
  std::string result;
  for (const auto& [bits, word] : table)
    if (reasons & bits)
      result += (result.empty() ? "" : ", ") + std::string(word);
  return result;
}

/// NVIDIA's "XID Errors": 48, 94, 95 and 140 are of memory and were not corrected, 79 is a GPU that has fallen off the
/// bus. Others are of programs, or do not say that the GPU is of no use.
bool means_loss(std::uint64_t xid) {
  static constexpr std::array<std::uint64_t, 5> all{48, 79, 94, 95, 140};
  return std::ranges::find(all, xid) != all.end();
}

struct known_gpu {
  nvml_device handle = nullptr;            ///< null: NVML does not know it
  std::optional<std::int64_t> uncorrected; ///< at the first look
};

} // namespace

struct gpu_health::shared {
  explicit shared(std::vector<watched_gpu> of, std::function<void(const std::string&)> f, milliseconds each) :
      gpus(std::move(of)), lost(std::move(f)), look_each(each) {}

  const std::vector<watched_gpu> gpus;
  const std::function<void(const std::string&)> lost;
  const milliseconds look_each;
  nvml_functions nvml;
  std::vector<known_gpu> known; ///< as gpus; the thread's

  mutex guard;
  std::condition_variable changed;
  std::vector<gpu_state> states GUARDED_BY(guard); ///< as gpus, or one for all
  bool stops GUARDED_BY(guard) = false;            ///< nobody wants to know any more
  bool ended GUARDED_BY(guard) = false;            ///< the thread is done

  void run();
  bool find_gpus();
  nvml_events hear_errors() const;
  std::string look(std::size_t i);
  std::string listen(nvml_events events, milliseconds limit);
  bool rest(milliseconds limit);
  void set_problem_of_all(const std::string& why) {
    const lock held(guard);
    states = {
        gpu_state{.place = "GPUs", .throttled = {}, .problem = std::string(clipped(why, gpu_state::longest_text))}};
  }
};

/// False: it is to end.
bool gpu_health::shared::rest(milliseconds limit) {
  lock held(guard);
  for (const auto end = clock::now() + limit; !stops && clock::now() < end;)
    held.wait_until(changed, end);
  return !stops;
}

/// False: nothing can be known.
bool gpu_health::shared::find_gpus() {
  if (const auto status = nvml.initialise(); status != nvml_success) {
    set_problem_of_all("not known: " + nvml.said(status));
    return false;
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    auto& x = known.emplace_back();
    auto status = nvml.find(gpus[i].unique.c_str(), &x.handle);
    if (status == nvml_not_found && gpus[i].unique.starts_with("GPU-")) { // CUDA gives a slice its UUID, but no kind
      status = nvml.find(("MIG" + gpus[i].unique.substr(3)).c_str(), &x.handle);
      if (status == nvml_success) // of a slice NVML knows next to nothing
        status = nvml.card_of_slice(x.handle, &x.handle);
    }
    if (status == nvml_success)
      continue;
    x.handle = nullptr;
    const lock held(guard);
    states[i].problem = clipped("not known: " + nvml.said(status), gpu_state::longest_text);
  }
  return true;
}

/// Null: it tells of none, as within some virtual machines.
nvml_events gpu_health::shared::hear_errors() const {
  nvml_events result = nullptr;
  if (nvml.make_events(&result) != nvml_success)
    return nullptr;
  bool any = false;
  for (const auto& x : known)
    any |= x.handle && (nvml.hear(x.handle, nvml_xid | nvml_double_bit_error, result) == nvml_success ||
                        nvml.hear(x.handle, nvml_xid, result) == nvml_success);
  return any ? result : nullptr;
}

/// Why that GPU is lost; empty: it is not.
std::string gpu_health::shared::look(std::size_t i) {
  auto& gpu = known[i];
  if (!gpu.handle)
    return {};
  gpu_state now;
  std::string loss;
  const auto ask = [&](int status) {
    if (status == nvml_gpu_is_lost || status == nvml_reset_required)
      loss = gpus[i].place + " is lost: " + nvml.said(status);
    return status == nvml_success;
  };
  if (nvml_utilization busy{}; ask(nvml.utilization(gpu.handle, &busy)))
    now.busy_percent = static_cast<std::int32_t>(busy.gpu);
  if (unsigned celsius = 0; ask(nvml.temperature(gpu.handle, nvml_of_the_gpu, &celsius)))
    now.celsius = static_cast<std::int32_t>(celsius);
  if (unsigned long long reasons = 0; ask(nvml.clock_reasons(gpu.handle, &reasons)))
    now.throttled = words_for(reasons);
  const auto count_of = [&](int kind) {
    unsigned long long count = 0; // not there without ECC
    return ask(nvml.errors(gpu.handle, kind, nvml_volatile, &count)) ? static_cast<std::int64_t>(count) : -1;
  };
  now.corrected = count_of(nvml_corrected);
  now.uncorrected = count_of(nvml_uncorrected);
  if (now.uncorrected >= 0 && now.uncorrected > gpu.uncorrected.value_or(now.uncorrected) && loss.empty())
    loss = gpus[i].place + " is lost: an error in its memory could not be corrected";
  if (now.uncorrected >= 0 && !gpu.uncorrected)
    gpu.uncorrected = now.uncorrected;
  const lock held(guard);
  now.place = gpus[i].place;
  now.xid = states[i].xid;
  states[i] = std::move(now);
  return loss;
}

/// Hears what the driver reports, for `limit`. Why a GPU is lost; empty: none is.
std::string gpu_health::shared::listen(nvml_events events, milliseconds limit) {
  // Nobody can wake it from there.
  constexpr milliseconds slice{100};
  for (const auto end = clock::now() + limit; clock::now() < end && rest(milliseconds(0));) {
    nvml_event heard{};
    const auto left = std::chrono::ceil<milliseconds>(end - clock::now());
    const auto status =
        events ? nvml.wait(events, &heard, static_cast<unsigned>(std::min(left, slice).count())) : nvml_not_found;
    if (status != nvml_success) {
      if (status != nvml_timeout)
        rest(left); // the next look says what is wrong
      continue;
    }
    const auto of = std::ranges::find(known, heard.device, &known_gpu::handle);
    if (of == known.end())
      continue;
    const auto i = static_cast<std::size_t>(of - known.begin());
    if (heard.type == nvml_double_bit_error)
      return gpus[i].place + " is lost: an error in its memory could not be corrected";
    {
      const lock held(guard);
      states[i].xid = heard.data;
    }
    if (means_loss(heard.data))
      return gpus[i].place + " is lost: the driver reports XID " + std::to_string(heard.data);
  }
  return {};
}

void gpu_health::shared::run() {
  if (!find_gpus())
    return;
  const auto events = hear_errors();
  std::string loss;
  while (loss.empty() && rest(milliseconds(0))) {
    for (std::size_t i = 0; i < gpus.size() && loss.empty(); ++i)
      loss = look(i);
    if (loss.empty())
      loss = listen(events, look_each);
  }
  if (!loss.empty() && rest(milliseconds(0)))
    lost(loss);
  nvml.end(); // and what it was asked to hear
}

gpu_health::gpu_health(std::vector<watched_gpu> gpus, std::function<void(const std::string&)> lost,
                       milliseconds look_each) :
    shared_(std::make_shared<shared>(std::move(gpus), std::move(lost), look_each)) {
  auto& x = *shared_;
  {
    const lock held(x.guard);
    for (const auto& gpu : x.gpus)
      x.states.push_back(gpu_state{.place = gpu.place, .throttled = {}, .problem = {}});
    x.ended = x.gpus.empty();
    if (x.ended)
      return;
  }
  if (const auto problem = x.nvml.open(); !problem.empty()) {
    x.set_problem_of_all(problem);
    const lock held(x.guard);
    x.ended = true;
    return;
  }
  std::thread([own = shared_] {
    own->run();
    const lock held(own->guard);
    own->ended = true;
    own->changed.notify_all();
  }).detach();
}

gpu_health::~gpu_health() {
  lock held(shared_->guard);
  shared_->stops = true;
  shared_->changed.notify_all();
  for (const auto end = clock::now() + milliseconds(1'000); !shared_->ended && clock::now() < end;)
    held.wait_until(shared_->changed, end);
}

std::vector<gpu_state> gpu_health::now() const {
  const lock held(shared_->guard);
  return shared_->states;
}

} // namespace parcae
