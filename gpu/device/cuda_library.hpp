#pragma once

// The way to GPUs: which are wanted, whether there is a driver, and the plug-in (gpu/cuda) that has all that is linked
// to CUDA. Torch-free. The plug-in brings LibTorch's CUDA library with it, so it is opened before LibTorch computes
// anything: a backward pass before that disables CUDA for the process.

#include "gpu/device/device.hpp"
#include "gpu/device/nccl_library.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// What --device says: "cpu", "cuda" (all GPUs), "cuda:1,3" or "cuda:GPU-…,MIG-…" (these), or "auto" (GPUs if there are
/// any). Of all, if CUDA_VISIBLE_DEVICES is set, only those that it says.
struct device_choice {
  enum class kind : std::uint8_t { cpu, cuda, automatic };
  kind what = kind::cpu;
  std::vector<std::uint32_t> numbers; ///< ascending as the driver counts; empty: all
  std::string names{};                ///< instead, as nvidia-smi -L has them, with commas
};

/// Throws std::invalid_argument with one line.
device_choice parse_device_choice(std::string_view x);

/// What the driver's own library says. Nothing else is loaded, nor is it where there is no driver.
struct driver_facts {
  std::uint32_t devices = 0;
  std::string problem; ///< why there are none, or none that can be used; empty: there are
  bool is_old = false; ///< that is because there is a driver, but for an earlier CUDA
};
driver_facts ask_driver();

/// The GPUs that were chosen, as the driver counts; none if it is to be the processor. Nothing but the driver is asked.
/// Names become CUDA_VISIBLE_DEVICES, for children as well: the driver must not have been asked before. Throws
/// device_error with what is missing.
std::vector<std::uint32_t> chosen_gpus(const device_choice& x);

/// What CUDA_VISIBLE_DEVICES says, which the driver heeds: " (… is …)". Empty: it is not set.
std::string among_visible();

/// What CUDA, LibTorch's kernels and cuBLAS's workspaces take of a GPU beside tensors; NCCL's buffers are counted by
/// themselves (nccl_bytes_of_peer).
inline constexpr std::uint64_t gpu_library_bytes = std::uint64_t{1} << 30;
/// What is left for tensors of all bytes of a GPU.
constexpr std::uint64_t bytes_for_tensors(std::uint64_t all) {
  return all - std::min(all, gpu_library_bytes);
}

/// Where NCCL may be heard: it neither authenticates nor encrypts.
enum class nccl_reach : std::uint8_t {
  host,    ///< on this host only: what the environment says is replaced
  network, ///< as the environment says, or NCCL chooses
};

/// The plug-in in this file, and all that it needs. Stays loaded. Changes the environment, so it is made before other
/// threads read it: NCCL_RAS_ENABLE=0, as NCCL's service for diagnosis listens and lets anybody in; what
/// nccl_reach says; and how LibTorch takes a GPU's memory (PYTORCH_ALLOC_CONF) and how many queues CUDA has for streams
/// (CUDA_DEVICE_MAX_CONNECTIONS), unless that was said already.
class cuda_library {
public:
  /// Throws device_error: the file is not there, a library that it needs is not, or it is of another build.
  cuda_library(const std::filesystem::path& file, nccl_reach reach);

  /// Throws device_error.
  std::unique_ptr<device> open(std::uint32_t number) const;
  /// For communicators of that GPU. Throws device_error.
  std::unique_ptr<nccl_library> open_nccl(std::uint32_t number) const;

private:
  void (*open_)(std::uint32_t number, device** result) = nullptr;
  void (*open_nccl_)(std::uint32_t number, nccl_library** result) = nullptr;
};

/// Where programs look for the plug-in: beside themselves.
std::filesystem::path cuda_library_file();

/// A GPU, and NCCL for communicators of it.
struct opened_gpu {
  std::unique_ptr<device> on;
  std::unique_ptr<nccl_library> nccl; ///< null: there is none
  std::string nccl_problem{};         ///< why, one line
};

/// chosen_gpus, in that order. Throws as that does, and if something else is missing.
std::vector<opened_gpu> open_gpus(const device_choice& x, const std::filesystem::path& file, nccl_reach reach);

/// Both sides of the plug-in say it; another means another build.
inline constexpr std::uint32_t cuda_library_version = 8;

} // namespace parcae
