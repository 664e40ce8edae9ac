#include "runtime/node/loader_log.hpp"

#include <spdlog/fmt/fmt.h>

#include <stdexcept>

namespace parcae {

loader_log::loader_log(const std::filesystem::path& path) : file_(path, std::ios::app) {
  if (!file_)
    throw std::runtime_error("cannot write the loader log " + path.string());
}

void loader_log::write(const loader_record& x) {
  auto line =
      fmt::format("{} {} {} {} {:016x}", x.at.value, x.step, x.micro_batch, x.targets ? "targets" : "inputs", x.hash);
  for (auto sample : x.samples)
    line += fmt::format(" {}", sample);
  line += '\n';
  const lock held(mutex_);
  file_ << line << std::flush;
}

} // namespace parcae
