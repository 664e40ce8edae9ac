#pragma once

// What the stand-in for NVIDIA's management library (stand_in_nvml.cpp) says, and when. Who opens it, as what is tested
// does, finds this by the name `stand_in_nvml`.

#include <atomic>

namespace parcae {

/// Statuses are those of the real library, 0: success.
struct stand_in_nvml_answers {
  std::atomic<int> to_initialise = 0;
  std::atomic<int> to_events = 0;  ///< whether errors can be heard of
  std::atomic<int> of_gpu_1 = 0;   ///< to whatever is asked about that one
  std::atomic<int> to_errors = 0;  ///< to how many errors of memory there were, of any
  std::atomic<bool> hangs = false; ///< does not return when it is asked about a GPU
  std::atomic<unsigned long long> reasons = 0;
  std::atomic<unsigned long long> uncorrected = 1; ///< of GPU 1; GPU 0 had none
  std::atomic<unsigned long long> type = 8;        ///< of what is reported
  std::atomic<unsigned long long> xid = 0;         ///< to be reported of GPU 1, once
  std::atomic<int> users = 0;                      ///< initialised it, and have not ended
};

} // namespace parcae
