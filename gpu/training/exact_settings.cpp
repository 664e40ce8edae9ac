#include "gpu/training/exact_settings.hpp"

#include <ATen/Context.h>

#include <cstdlib>
#include <mutex>

namespace parcae {

void make_libtorch_exact() {
  static std::once_flag once;
  std::call_once(once, [] {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1); // one that cuBLAS calls deterministic, and all nodes have
    auto& x = at::globalContext();
    x.setAllowTF32CuBLAS(false);
    x.setAllowTF32CuDNN(false); // on unless it is said
    x.setFloat32MatmulPrecision("highest");
    x.setAllowBF16ReductionCuBLAS(false, true);
    x.setAllowFP16BF16ReductionMathSDP(false);
    x.setDeterministicAlgorithms(true, false);
    x.setDeterministicFillUninitializedMemory(false); // nothing here reads what was not written
    x.setDeterministicCuDNN(true);
    x.setBenchmarkCuDNN(false);
    x.setSDPUseCuDNN(false);
  });
}

} // namespace parcae
