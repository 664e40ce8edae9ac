#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace parcae {

/// Of a process of this user's.
inline long resident_kib(pid_t process = getpid()) {
  std::ifstream in("/proc/" + std::to_string(process) + "/smaps_rollup");
  std::string word;
  while (in >> word && word != "Rss:") {
  }
  long result = 0;
  in >> result;
  return result;
}

} // namespace parcae
