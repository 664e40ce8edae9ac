#pragma once

// A file with one line per micro-batch loaded: "generation step micro_batch inputs|targets hash sample sample …".
// Joined with the job's chain it shows that no sample is skipped or counted twice.

#include "gpu/executor/executor.hpp"
#include "protocols/base/locks.hpp"

#include <filesystem>
#include <fstream>

namespace parcae {

class loader_log {
public:
  /// Appends to the file. Throws std::runtime_error if it cannot be written.
  explicit loader_log(const std::filesystem::path& path);

  /// May be called from any thread. Each line reaches the system at once, so that a kill loses none.
  void write(const loader_record& x);

private:
  mutex mutex_;
  std::ofstream file_ GUARDED_BY(mutex_);
};

} // namespace parcae
