#include "gpu/data/picture.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <random>
#include <string>

namespace parcae {

namespace {

/// What one output pixel is made of.
struct mixture {
  std::uint32_t first = 0;            ///< input pixel
  std::vector<std::uint32_t> weights; ///< in 65536ths, of sum 65536
};

// Distances are counted in 1/(2·out) input pixels, so that all are whole numbers.
std::vector<mixture> mixtures(std::uint32_t in, std::uint32_t out) {
  std::vector<mixture> result(out);
  const auto unit = 2 * std::int64_t{out}, reach = 2 * std::int64_t{std::max(in, out)};
  std::vector<std::int64_t> raw;
  for (std::int64_t i = 0; i < out; ++i) {
    const auto centre = (2 * i + 1) * in;
    const auto first = std::max<std::int64_t>(0, (centre - reach - out) / unit);
    const auto last = std::min<std::int64_t>(in - 1, (centre + reach) / unit);
    auto& x = result[static_cast<std::size_t>(i)];
    x.first = static_cast<std::uint32_t>(first);
    raw.clear();
    std::int64_t sum = 0;
    for (auto j = first; j <= last; ++j) {
      const auto distance = std::abs((2 * j + 1) * std::int64_t{out} - centre);
      raw.push_back(std::max<std::int64_t>(0, reach - distance));
      sum += raw.back();
    }
    std::uint32_t rest = 65'536;
    for (auto weight : raw) {
      x.weights.push_back(static_cast<std::uint32_t>(weight * 65'536 / sum));
      rest -= x.weights.back();
    }
    *std::ranges::max_element(x.weights) += rest;
  }
  return result;
}

std::uint64_t root_of(std::uint64_t x) {
  std::uint64_t root = 0;
  for (auto bit = std::uint64_t{1} << 31; bit > 0; bit >>= 1)
    if ((root | bit) * (root | bit) <= x)
      root |= bit;
  return root;
}

} // namespace

bool is_picture(std::string_view name) {
  constexpr std::array<std::string_view, 3> known{".jpg", ".jpeg", ".png"};
  return std::ranges::any_of(known, [&](auto suffix) {
    return name.size() > suffix.size() &&
           std::ranges::equal(name.substr(name.size() - suffix.size()), suffix, {},
                              [](unsigned char x) { return static_cast<char>(std::tolower(x)); });
  });
}

picture_part central_part(const picture& from, std::uint32_t size, std::uint32_t resize) {
  const std::uint64_t shorter = std::min(from.width, from.height);
  const auto side =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>((shorter * size + resize / 2) / resize, 1, shorter));
  return {(from.width - side) / 2, (from.height - side) / 2, side, side};
}

picture_part random_part(const picture& from, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  constexpr std::uint64_t one = 1 << 16; // of areas and ratios
  const auto area = std::uint64_t{from.width} * from.height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const auto share = one * 8 / 100 + random() % (one - one * 8 / 100 + 1);
    const auto ratio = one * 3 / 4 + random() % (one / 4 + 1);
    const auto longer = root_of(area * share / ratio), shorter = longer * ratio / one;
    const bool wide = random() % 2 == 0;
    const auto width = wide ? longer : shorter, height = wide ? shorter : longer;
    if (width < 1 || height < 1 || width > from.width || height > from.height)
      continue;
    const auto x = random() % (from.width - width + 1), y = random() % (from.height - height + 1);
    return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(width),
            static_cast<std::uint32_t>(height)};
  }
  return central_part(from, 1, 1);
}

void resize_part(const picture& from, const picture_part& part, std::uint32_t size, std::span<std::int64_t> to) {
  const auto across = mixtures(part.width, size), down = mixtures(part.height, size);
  const std::size_t channels = from.channels, row = channels * size;
  std::vector<std::uint8_t> narrow(row * part.height); // rows as many as the part's
  for (std::size_t y = 0; y < part.height; ++y) {
    const auto* source = from.samples.data() + ((y + part.y) * from.width + part.x) * channels;
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t c = 0; c < channels; ++c) {
        std::uint32_t sum = 32'768;
        const auto* sample = source + across[i].first * channels + c;
        for (auto weight : across[i].weights) {
          sum += weight * *sample;
          sample += channels;
        }
        narrow[y * row + i * channels + c] = static_cast<std::uint8_t>(sum >> 16);
      }
  }
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t x = 0; x < size; ++x)
      for (std::size_t c = 0; c < channels; ++c) {
        std::uint32_t sum = 32'768;
        const auto* sample = narrow.data() + down[i].first * row + x * channels + c;
        for (auto weight : down[i].weights) {
          sum += weight * *sample;
          sample += row;
        }
        to[(c * size + i) * size + x] = sum >> 16;
      }
}

} // namespace parcae
