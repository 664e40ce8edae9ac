// Hands every file of the folders given to a target, by any compiler: what fuzzing found interesting stays tested. Then
// edits of it, the same each time: what is near it.

#include "tests/fuzz/fuzz.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int edits_of_each = 200;

std::string name;
int edit = 0; ///< 0: the file as it is

// Of what numbers and texts may end with, or be instead.
using namespace std::string_view_literals;
constexpr auto pieces = "nan inf -1 1e9 9223372036854775807 0xffffffffffffffff 1979-05-27T07:32:00Z [[]] {} {a=1} '''"
                        "\"\"\" \\ud800 \\u0000 0179-+.,:;=#_\\/<>&%\t\r\n\0\x7f\xc3\xa9"sv;

void change(std::string& x, std::mt19937_64& random) {
  const auto at = random() % (x.size() + 1);
  switch (random() % 8) {
  case 0:
    x.erase(at, 1 + random() % 20);
    break;
  case 1:
    x.insert(random() % (x.size() + 1), x.substr(at, random() % 40));
    break;
  case 2:
    x.insert(at, pieces.substr(random() % pieces.size(), 1 + random() % 3));
    break;
  case 3:
    x.insert(at, pieces.substr(random() % pieces.size(), 1 + random() % 20));
    break;
  case 4:
    x.resize(at);
    break;
  default:
    if (at < x.size())
      x[at] = random() % 4 == 0 ? '\xff' : static_cast<char>(random());
  }
}

void hand_over(const std::string& x) {
  // At its exact size, so that what reads beyond it reads beyond an allocation.
  const std::vector<std::uint8_t> exact(x.begin(), x.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  name = path.filename().string();
  edit = 0;
  hand_over(good);
  std::seed_seq seed(name.begin(), name.end()); // whatever other files there are
  std::mt19937_64 random(seed);
  while (++edit <= edits_of_each) {
    auto x = good;
    if (edit % 20 == 0)
      std::ranges::generate(x, [&] { return static_cast<char>(random()); });
    else
      for (auto changes = 1 + random() % 4; changes > 0; --changes)
        change(x, random);
    hand_over(x);
  }
}

} // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, [](int) { std::fprintf(stderr, "%s, edit %d\n", name.c_str(), edit); });
  std::size_t files = 0;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      replay(entry.path());
      ++files;
    }
  std::printf("%zu files\n", files);
  return files > 0 ? 0 : 1;
}
