#pragma once

namespace parcae {

/// LibTorch's settings that decide about bits, the same for all devices and jobs: no TF32 or other short cuts in
/// float32 products, sums of bfloat16 products in float32, deterministic algorithms (without filling of new memory),
/// attention not by cuDNN, no choice of algorithms by timing; and cuBLAS's workspace, in the environment, whatever that
/// says. Made once for the process, further calls do nothing. A program calls it before it has threads and before the
/// plug-in for GPUs is opened: cuBLAS reads the environment when it is loaded, and the process must not change it while
/// others read.
void make_libtorch_exact();

} // namespace parcae
