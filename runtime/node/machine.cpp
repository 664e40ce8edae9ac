#include "runtime/node/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

namespace parcae {

namespace {

std::string host_name() {
  char host[256] = {};
  return gethostname(host, sizeof host - 1) == 0 ? host : "";
}

// Cores that the control group has time for, rounded up; 0: no limit. In a container its group is the root it sees.
std::uint32_t quota_cores() {
  double quota = 0, period = 0;
  if (std::ifstream unified("/sys/fs/cgroup/cpu.max"); !(unified >> quota >> period)) { // "max" is no number
    quota = period = 0;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota; // -1: no limit
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? static_cast<std::uint32_t>(std::ceil(quota / period)) : 0;
}

} // namespace

std::uint64_t machine_bytes() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

machine_facts this_machine() {
  machine_facts result;
  result.bytes = machine_bytes();
  std::ifstream("/proc/sys/kernel/random/boot_id") >> result.id;
  const auto host = host_name();
  if (result.id.empty()) // not everywhere to be read
    result.id = host;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    result.cores = static_cast<std::uint32_t>(CPU_COUNT(&allowed));
    const auto all = sysconf(_SC_NPROCESSORS_ONLN);
    if (all > 0 && result.cores < static_cast<std::uint32_t>(all))
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &allowed))
          result.id += "," + std::to_string(cpu);
  }
  if (const auto cores = quota_cores(); cores > 0 && cores < result.cores) {
    result.cores = cores;
    result.id += "@" + host; // a container's
  }
  result.id.resize(std::min(result.id.size(), machine_facts::longest_id));
  return result;
}

instance_ages ages_now() {
  instance_ages result;
  double up_s = 0;
  if (!(std::ifstream("/proc/uptime") >> up_s))
    return result;
  result.machine_ms = static_cast<std::uint64_t>(1000 * up_s);
  std::ifstream file("/proc/self/stat");
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(all.substr(std::min(all.rfind(')'), all.size() - 1) + 1)); // a name may have anything in it
  std::string skipped;
  for (int i = 3; i < 22; ++i) // proc(5): the 22nd is when it began, in ticks since the machine did
    fields >> skipped;
  const double ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (double began = 0; fields >> began && began / ticks_per_s < up_s)
    result.process_ms = std::max<std::uint64_t>(static_cast<std::uint64_t>(1000 * (up_s - began / ticks_per_s)), 1);
  return result;
}

instance_ages ages_after(instance_ages x, std::chrono::nanoseconds passed) {
  const auto ms = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(passed).count());
  for (auto* age : {&x.process_ms, &x.machine_ms})
    if (*age > 0)
      *age += ms;
  return x;
}

std::string default_node_name() {
  auto name = host_name();
  if (name.empty())
    return "node-" + std::to_string(getpid());
  std::replace(name.begin(), name.end(), '/', '-');
  return name.substr(0, 60) + "-" + std::to_string(getpid());
}

} // namespace parcae
