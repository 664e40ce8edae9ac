#include "tests/support/data_folder.hpp"

#include "tests/gpu/data/pictures.hpp"

#include <cstdlib>
#include <fstream>
#include <random>
#include <stdexcept>
#include <vector>

namespace parcae {

namespace {

std::string random_numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string result(4 * count, '\0');
  for (std::size_t i = 0; i < count; ++i)
    result[4 * i] = static_cast<char>(random());
  return result;
}

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

} // namespace

data_folder::data_folder() {
  auto pattern = (std::filesystem::temp_directory_path() / "parcae-data.XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw std::runtime_error("no folder for data");
  path_ = pattern;
}

data_folder::~data_folder() {
  std::filesystem::remove_all(path_);
}

std::string data_folder::large_tokens() const {
  write(path_ / "large.bin", random_numbers(9 << 20, 1));
  return (path_ / "large.bin").string();
}

std::string data_folder::few_tokens() const {
  write(path_ / "few.bin", random_numbers(4000, 2));
  return (path_ / "few.bin").string();
}

std::string data_folder::images() const {
  std::mt19937_64 random(3);
  for (int i = 0; i < 30; ++i) {
    const auto width = static_cast<std::uint32_t>(17 + random() % 20),
               height = static_cast<std::uint32_t>(17 + random() % 20);
    std::vector<std::uint8_t> samples(std::size_t{3} * width * height);
    for (auto& x : samples)
      x = static_cast<std::uint8_t>(random());
    const auto name = "images/" + std::string(1, static_cast<char>('a' + i % 3)) + "/" + std::to_string(i);
    if (i % 2 == 0)
      write(path_ / (name + ".png"), png_of(width, height, PNG_COLOR_TYPE_RGB, 8, samples));
    else
      write(path_ / (name + ".jpg"), jpeg_of(width, height, JCS_RGB, samples, i % 4 == 1));
  }
  return (path_ / "images").string();
}

std::string data_folder::columns(std::uint32_t sequence) const {
  const auto shape = "[" + std::to_string(sequence) + "]}";
  write(
      path_ / "columns/samples.json",
      R"({"format": "parcae.samples", "version": 1, "samples": 200, "inputs": [{"name": "input_ids", "type": "int32", "shape": )" +
          shape + R"(], "targets": {"name": "labels", "type": "int32", "shape": )" + shape + "}");
  write(path_ / "columns/samples.bin", random_numbers(std::size_t{400} * sequence, 4));
  return (path_ / "columns").string();
}

} // namespace parcae
