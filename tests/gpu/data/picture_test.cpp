// Pictures: what decoders make of all kinds of files, and what is made of pictures.

#include "gpu/data/picture.hpp"
#include "tests/gpu/data/pictures.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <tuple>

namespace parcae {
namespace {

using bytes_of_samples = std::vector<std::uint8_t>;

picture decode(const std::string& file, std::uint32_t channels = 3) {
  return decode_picture(std::as_bytes(std::span(file)), channels);
}

std::string refusal(const std::string& file) {
  return thrown_by([&] { decode(file); });
}

/// 5×3 colours, all different.
bytes_of_samples colours() {
  bytes_of_samples result;
  for (std::uint8_t i = 0; i < 15; ++i)
    for (std::uint8_t c = 0; c < 3; ++c)
      result.push_back(static_cast<std::uint8_t>(16 * i + 5 * c));
  return result;
}

TEST(picture, png_of_every_kind) {
  const auto rgb = colours();
  for (const bool interlaced : {false, true}) {
    const auto x = decode(png_of(5, 3, PNG_COLOR_TYPE_RGB, 8, rgb, interlaced));
    EXPECT_EQ(std::tuple(x.width, x.height, x.channels), std::tuple(5u, 3u, 3u));
    EXPECT_EQ(x.samples, rgb);
  }
  bytes_of_samples with_alpha, deep;
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    with_alpha.push_back(rgb[i]);
    if (i % 3 == 2)
      with_alpha.push_back(7); // nearly transparent; what is below it counts
    deep.push_back(rgb[i]);    // 257 times it: exactly the same share of the range
    deep.push_back(rgb[i]);
  }
  EXPECT_EQ(decode(png_of(5, 3, PNG_COLOR_TYPE_RGBA, 8, with_alpha)).samples, rgb);
  EXPECT_EQ(decode(png_of(5, 3, PNG_COLOR_TYPE_RGB, 16, deep)).samples, rgb);
  const bytes_of_samples gray{0, 100, 200};
  EXPECT_EQ(decode(png_of(3, 1, PNG_COLOR_TYPE_GRAY, 8, gray)).samples,
            (bytes_of_samples{0, 0, 0, 100, 100, 100, 200, 200, 200}));
  EXPECT_EQ(decode(png_of(3, 1, PNG_COLOR_TYPE_GRAY, 8, gray), 1).samples, gray);
  EXPECT_EQ(decode(png_of(8, 1, PNG_COLOR_TYPE_GRAY, 1, {0b10100000}), 1).samples,
            (bytes_of_samples{255, 0, 255, 0, 0, 0, 0, 0}));
  EXPECT_EQ(decode(png_of(4, 1, PNG_COLOR_TYPE_PALETTE, 2, {0b00011011})).samples,
            (bytes_of_samples{0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255}));
  EXPECT_EQ(decode(png_of(1, 1, PNG_COLOR_TYPE_RGB, 8, {255, 0, 0}), 1).samples, bytes_of_samples{76}); // 0.299
}

// Smooth, so that JPEG keeps it within a few units.
TEST(picture, jpeg_of_every_kind) {
  constexpr std::uint32_t width = 40, height = 24;
  bytes_of_samples rgb, gray, inks;
  for (std::uint32_t y = 0; y < height; ++y)
    for (std::uint32_t x = 0; x < width; ++x) {
      const std::uint8_t pixel[3] = {static_cast<std::uint8_t>(5 * x), static_cast<std::uint8_t>(8 * y), 90};
      rgb.insert(rgb.end(), pixel, pixel + 3);
      gray.push_back(pixel[0]);
      for (auto c : pixel) // as Adobe's programs do: inverted, and no black
        inks.push_back(c);
      inks.push_back(255);
    }
  const auto near = [](const bytes_of_samples& x, const bytes_of_samples& y) {
    ASSERT_EQ(x.size(), y.size());
    int worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, std::abs(x[i] - y[i]));
    EXPECT_LE(worst, 12);
  };
  near(decode(jpeg_of(width, height, JCS_RGB, rgb)).samples, rgb);
  near(decode(jpeg_of(width, height, JCS_RGB, rgb, true)).samples, rgb);
  near(decode(jpeg_of(width, height, JCS_GRAYSCALE, gray), 1).samples, gray);
  near(decode(jpeg_of(width, height, JCS_CMYK, inks)).samples, rgb);
}

// given: files cut at any byte / expected: refused, or the whole picture; never a part of one
TEST(picture, truncated_files_are_refused) {
  const auto rgb = colours();
  const auto jpeg = jpeg_of(5, 3, JCS_RGB, rgb), png = png_of(5, 3, PNG_COLOR_TYPE_RGB, 8, rgb);
  for (std::size_t n = 0; n + 2 < jpeg.size(); ++n)
    EXPECT_NE(refusal(jpeg.substr(0, n)), "") << n << " bytes of the JPEG";
  for (std::size_t n = 0; n + 12 < png.size(); ++n) // the last twelve bytes are the end's own
    if (refusal(png.substr(0, n)).empty()) {
      EXPECT_EQ(decode(png.substr(0, n)).samples, rgb) << n;
    }
}

TEST(picture, what_would_take_too_much_is_refused) {
  auto png = png_of(5, 3, PNG_COLOR_TYPE_RGB, 8, colours());
  // 60000×60000 with the right sum of its header
  const auto put = [&](std::size_t at, std::uint32_t x) {
    for (int i = 0; i < 4; ++i)
      png[at + static_cast<std::size_t>(i)] = static_cast<char>(x >> (24 - 8 * i));
  };
  put(16, 60'000);
  put(20, 60'000);
  std::uint32_t sum = UINT32_MAX;
  for (std::size_t i = 12; i < 29; ++i) {
    sum ^= static_cast<unsigned char>(png[i]);
    for (int bit = 0; bit < 8; ++bit)
      sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
  }
  put(29, ~sum);
  EXPECT_THAT(refusal(png), HasSubstr("60000×60000 pixels"));
  auto jpeg = jpeg_of(5, 3, JCS_RGB, colours());
  const auto frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, std::string("\xf0\xf0\xf0\xf0"));
  EXPECT_THAT(refusal(jpeg), HasSubstr("61680×61680 pixels"));
  EXPECT_THAT(refusal("GIF89a"), HasSubstr("neither JPEG nor PNG"));
  EXPECT_NE(refusal(""), "");
}

/// The same filter in double precision, both directions at once.
double reference(const picture& from, const picture_part& part, std::uint32_t size, std::uint32_t c, std::uint32_t y,
                 std::uint32_t x) {
  const auto weights = [&](std::uint32_t in, std::uint32_t i) {
    const double scale = double(in) / size, reach = std::max(1.0, scale), centre = (i + 0.5) * scale;
    std::vector<double> result;
    double sum = 0;
    for (std::uint32_t j = 0; j < in; ++j) {
      result.push_back(std::max(0.0, 1 - std::abs(j + 0.5 - centre) / reach));
      sum += result.back();
    }
    for (auto& w : result)
      w /= sum;
    return result;
  };
  const auto across = weights(part.width, x), down = weights(part.height, y);
  double result = 0;
  for (std::uint32_t j = 0; j < part.height; ++j)
    for (std::uint32_t i = 0; i < part.width; ++i)
      result += down[j] * across[i] * from.samples[((j + part.y) * from.width + i + part.x) * from.channels + c];
  return result;
}

picture noise(std::uint32_t width, std::uint32_t height, std::uint32_t channels) {
  picture x{width, height, channels, bytes_of_samples(std::size_t{width} * height * channels)};
  std::mt19937_64 random(width * 1000 + height);
  for (auto& sample : x.samples)
    sample = static_cast<std::uint8_t>(random());
  return x;
}

// given: parts, larger and smaller than what is wanted / expected: the filter's value, but for two roundings
TEST(picture, resizing_agrees_with_the_filter_in_double_precision) {
  for (const auto& [width, height, part, size] : {std::tuple(40u, 30u, picture_part{0, 0, 40, 30}, 8u),
                                                  {40u, 30u, picture_part{3, 5, 20, 20}, 20u},
                                                  {7u, 9u, picture_part{1, 2, 3, 5}, 16u},
                                                  {301u, 5u, picture_part{0, 0, 301, 5}, 7u},
                                                  {1u, 1u, picture_part{0, 0, 1, 1}, 4u}})
    for (const auto channels : {1u, 3u}) {
      const auto from = noise(width, height, channels);
      std::vector<std::int64_t> to(std::size_t{channels} * size * size);
      resize_part(from, part, size, to);
      for (std::uint32_t c = 0; c < channels; ++c)
        for (std::uint32_t y = 0; y < size; ++y)
          for (std::uint32_t x = 0; x < size; ++x)
            ASSERT_NEAR(static_cast<double>(to[(c * size + y) * size + x]), reference(from, part, size, c, y, x), 1.1)
                << width << "×" << height << " to " << size << " at " << c << ", " << y << ", " << x;
    }
}

TEST(picture, a_part_of_the_same_size_is_itself) {
  const auto from = noise(20, 10, 3);
  std::vector<std::int64_t> to(3 * 8 * 8);
  resize_part(from, {2, 1, 8, 8}, 8, to);
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t y = 0; y < 8; ++y)
      for (std::size_t x = 0; x < 8; ++x)
        EXPECT_EQ(to[(c * 8 + y) * 8 + x], from.samples[((y + 1) * 20 + x + 2) * 3 + c]);
}

// given: many seeds / expected: within the picture, of the areas and ratios promised, spread over them
TEST(picture, random_parts_are_as_promised) {
  const auto from = noise(200, 150, 1);
  double least = 1, most = 0, wide = 0;
  std::set<std::pair<std::uint32_t, std::uint32_t>> places;
  constexpr int draws = 4000;
  for (std::uint64_t seed = 0; seed < draws; ++seed) {
    const auto x = random_part(from, seed);
    ASSERT_GE(x.width, 1u);
    ASSERT_LE(x.x + x.width, 200u);
    ASSERT_LE(x.y + x.height, 150u);
    const auto share = double(x.width) * x.height / (200 * 150), ratio = double(x.width) / x.height;
    ASSERT_GT(ratio, 0.72);
    ASSERT_LT(ratio, 1.39);
    ASSERT_GT(share, 0.075);
    least = std::min(least, share);
    most = std::max(most, share);
    wide += x.width > x.height;
    places.emplace(x.x, x.y);
  }
  EXPECT_LT(least, 0.09);
  EXPECT_GT(most, 0.9);
  EXPECT_GT(wide / draws, 0.4); // the picture is wide: such parts fit more often
  EXPECT_GT(places.size(), 2000u);
}

TEST(picture, central_parts_are_in_the_middle) {
  const auto x = central_part(noise(200, 100, 1), 224, 256);
  EXPECT_EQ(std::tuple(x.x, x.y, x.width, x.height), std::tuple(56u, 6u, 88u, 88u));
  const auto y = central_part(noise(3, 1, 1), 32, 32);
  EXPECT_EQ(std::tuple(y.x, y.y, y.width, y.height), std::tuple(1u, 0u, 1u, 1u));
}

} // namespace
} // namespace parcae
