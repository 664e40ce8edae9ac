#include "tests/support/data_folder.hpp"

#include "tests/gpu/data/pictures.hpp"

#include <random>
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

} // namespace

std::string data_folder::large_tokens() const {
  write_file(path_ / "large.bin", random_numbers(9 << 20, 1));
  return (path_ / "large.bin").string();
}

std::string data_folder::few_tokens() const {
  write_file(path_ / "few.bin", random_numbers(4000, 2));
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
      write_file(path_ / (name + ".png"), png_of(width, height, PNG_COLOR_TYPE_RGB, 8, samples));
    else
      write_file(path_ / (name + ".jpg"), jpeg_of(width, height, JCS_RGB, samples, i % 4 == 1));
  }
  return (path_ / "images").string();
}

std::string data_folder::columns(std::uint32_t sequence) const {
  const auto shape = "[" + std::to_string(sequence) + "]}";
  write_file(
      path_ / "columns/samples.json",
      R"({"format": "parcae.samples", "version": 1, "samples": 200, "inputs": [{"name": "input_ids", "type": "int32", "shape": )" +
          shape + R"(], "targets": {"name": "labels", "type": "int32", "shape": )" + shape + "}");
  write_file(path_ / "columns/samples.bin", random_numbers(std::size_t{400} * sequence, 4));
  return (path_ / "columns").string();
}

} // namespace parcae
