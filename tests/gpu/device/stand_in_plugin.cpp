// A plug-in whose GPUs are the processor, to lie beside a copy of the programs. Of each GPU STAND_IN_BYTES says how
// much memory it has, STAND_IN_NAME what it is called behind GPU- and its number, and STAND_IN_PLACE where LibTorch
// computes, where it is to compute.

#include "gpu/device/cuda_library.hpp"

#include <cstdlib>

namespace {

using namespace parcae;

std::string said(const char* name, const std::string& otherwise) {
  const auto* x = std::getenv(name);
  return x ? x : otherwise;
}

class stand_in_gpu final : public device {
public:
  explicit stand_in_gpu(const std::string& number) {
    facts_.type = "cuda";
    facts_.place = said("STAND_IN_PLACE", "cuda:" + number);
    facts_.name = facts_.computes_as = "a stand-in";
    facts_.bytes = std::stoull(said("STAND_IN_BYTES", "2000000000"));
    facts_.unique = "GPU-" + number + said("STAND_IN_NAME", "");
  }

  const device_facts& facts() const override { return facts_; }
  device_memory allocate(std::size_t bytes) override { return below_->allocate(bytes); }
  device_memory allocate_pinned(std::size_t bytes) override { return below_->allocate(bytes); }
  std::unique_ptr<stream> make_stream() override { return below_->make_stream(); }
  stream& compute() override { return below_->compute(); }

private:
  device_facts facts_;
  const std::unique_ptr<device> below_ = make_cpu_device({});
};

} // namespace

extern "C" {
extern const std::uint32_t parcae_cuda_version;
const std::uint32_t parcae_cuda_version = cuda_library_version;

void parcae_cuda_open(std::uint32_t number, device** result) {
  *result = new stand_in_gpu(std::to_string(number));
}
void parcae_cuda_open_nccl(std::uint32_t, nccl_library**) {
  throw device_error("a stand-in has no NCCL");
}
}
