#pragma once

#include <fstream>
#include <string>

namespace parcae {

/// Of this process.
inline long resident_kib() {
  std::ifstream in("/proc/self/smaps_rollup");
  std::string word;
  while (in >> word && word != "Rss:") {
  }
  long result = 0;
  in >> result;
  return result;
}

} // namespace parcae
