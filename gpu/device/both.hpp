#pragma once

// For functions that are compiled for the processor and for GPUs from one source, with the same bits: IEEE operations
// only, each rounded by itself (-ffp-contract=off, --fmad=false), and no function of a mathematical library but the
// square root, which IEEE rounds correctly.

#ifdef __CUDACC__
#define PARCAE_BOTH __host__ __device__ __forceinline__
#else
#define PARCAE_BOTH inline __attribute__((always_inline))
#endif
