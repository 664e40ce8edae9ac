#pragma once

// How busy others keep the machine while a bench measures by the clock.

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace parcae {

/// CPU time that other processes than this one and its ended children, or the machine's host, took since the machine
/// started.
inline double others_ms() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, io = 0, interrupts = 0, soft_interrupts = 0, stolen = 0;
  file >> cpu >> user >> nice >> system >> idle >> io >> interrupts >> soft_interrupts >> stolen;
  const auto busy = user + nice + system + interrupts + soft_interrupts + stolen;
  double ours_ms = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage x{};
    getrusage(who, &x);
    ours_ms += 1e3 * static_cast<double>(x.ru_utime.tv_sec + x.ru_stime.tv_sec) +
               1e-3 * static_cast<double>(x.ru_utime.tv_usec + x.ru_stime.tv_usec);
  }
  return busy * 1e3 / static_cast<double>(::sysconf(_SC_CLK_TCK)) - ours_ms;
}

} // namespace parcae
