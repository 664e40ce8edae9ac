// Hands every file of the folders given to a target: what fuzzing found interesting stays tested, by any compiler.

#include "tests/fuzz/fuzz.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

int main(int argc, char** argv) {
  std::size_t files = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      std::fprintf(stderr, "%s\n", entry.path().filename().c_str());
      // At its exact size, so that what reads beyond it reads beyond an allocation.
      const std::vector<std::uint8_t> exact(bytes.begin(), bytes.end());
      LLVMFuzzerTestOneInput(exact.data(), exact.size());
      ++files;
    }
  std::printf("%zu files\n", files);
  return files > 0 ? 0 : 1;
}
