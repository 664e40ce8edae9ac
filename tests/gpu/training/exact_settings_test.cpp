// What LibTorch's context and the environment say after the settings were made.

#include "gpu/training/exact_settings.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <gtest/gtest.h>

#include <cstdlib>

namespace parcae {
namespace {

// given: a process in which everything was set otherwise, as LibTorch has it or worse / expected: exact settings; a
// second call leaves alone what somebody has changed since
TEST(exact_settings, are_made_once) {
  auto& x = at::globalContext();
  x.setAllowTF32CuBLAS(true);
  x.setBenchmarkCuDNN(true);
  ASSERT_TRUE(x.allowTF32CuBLAS() && x.allowTF32CuDNN() && x.benchmarkCuDNN() && x.userEnabledCuDNNSDP());
  ASSERT_FALSE(x.deterministicAlgorithms());
  unsetenv("CUBLAS_WORKSPACE_CONFIG");

  make_libtorch_exact();
  EXPECT_FALSE(x.allowTF32CuBLAS());
  EXPECT_FALSE(x.allowTF32CuDNN());
  EXPECT_FALSE(x.allowTF32OneDNN());
  EXPECT_EQ(x.float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
  for (const auto backend : {at::Float32Backend::CUDA, at::Float32Backend::MKLDNN})
    for (const auto op : {at::Float32Op::CONV, at::Float32Op::MATMUL}) {
      const auto precision = x.float32Precision(backend, op);
      EXPECT_TRUE(precision == at::Float32Precision::IEEE || precision == at::Float32Precision::NONE);
    }
  EXPECT_EQ(x.allowBF16ReductionCuBLAS(), at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK);
  EXPECT_FALSE(x.allowFP16BF16ReductionMathSDP());
  EXPECT_TRUE(x.deterministicAlgorithms());
  EXPECT_FALSE(x.deterministicAlgorithmsWarnOnly());
  EXPECT_FALSE(x.deterministicFillUninitializedMemory());
  EXPECT_TRUE(x.deterministicCuDNN());
  EXPECT_FALSE(x.benchmarkCuDNN());
  EXPECT_FALSE(x.userEnabledCuDNNSDP());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");

  x.setBenchmarkCuDNN(true);
  make_libtorch_exact();
  EXPECT_TRUE(x.benchmarkCuDNN());
}

} // namespace
} // namespace parcae
