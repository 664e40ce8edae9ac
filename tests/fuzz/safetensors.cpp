// Headers of safetensors files, of checkpoints and of models from elsewhere.

#include "gpu/checkpoint/safetensors.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  // A file without a disk: what reads it opens files only.
  static const int memory = memfd_create("safetensors", 0);
  promise(memory >= 0 && ftruncate(memory, 0) == 0 && pwrite(memory, data, size, 0) == static_cast<ssize_t>(size),
          "there is memory for the file");
  try {
    safetensors_file file("/proc/self/fd/" + std::to_string(memory));
    promise(file.metadata().size() <= size, "no more metadata than bytes");
    for (const auto* name : {"a", "b", ""}) {
      const auto bytes = file.size_of(name);
      promise(bytes <= size, "a tensor is in the file");
      std::vector<std::byte> values(bytes);
      file.read({name, {static_cast<std::int64_t>(bytes / sizeof(float))}}, values.data());
    }
  } catch (const std::runtime_error& e) {
    promise(std::string_view(e.what()).find("/proc/self/fd/") != std::string_view::npos, "an error names the file");
  }
  return 0;
}
