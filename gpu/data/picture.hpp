#pragma once

// Pictures: JPEG and PNG files as pixels, and parts of pictures at other sizes. Pure; the same bits on every processor:
// libjpeg-turbo's exact transform (JDCT_ISLOW) has them, and all else is arithmetic on whole numbers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace parcae {

inline constexpr std::uint64_t picture_file_limit = 64 << 20;    ///< bytes
inline constexpr std::uint64_t picture_pixel_limit = 32'000'000; ///< of one picture: 96 MB

struct picture {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint32_t channels = 0;        ///< 3: red, green, blue; 1: gray
  std::vector<std::uint8_t> samples; ///< row by row, pixel by pixel
};

/// JPEG or PNG, by its first bytes, as colours or as gray (ITU-R 601: 0.299 red, 0.587 green, 0.114 blue). Gray,
/// palettes, 16 bit and CMYK become that; transparency is left out. What is truncated, damaged, larger than the limits,
/// or made to take long (more than 100 scans) is refused: std::runtime_error, the reason.
picture decode_picture(std::span<const std::byte> file, std::uint32_t channels);

/// A file that decode_picture is for, by its name: *.jpg, *.jpeg, *.png.
bool is_picture(std::string_view name);

/// A rectangle of a picture, in pixels; not empty.
struct picture_part {
  std::uint32_t x = 0;
  std::uint32_t y = 0;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
};

/// The largest square in the middle, but for what resizing the shorter side to `resize` and keeping `size` of it cuts
/// off: of side shorter·size/resize, rounded, at least 1.
picture_part central_part(const picture& from, std::uint32_t size, std::uint32_t resize);

/// As torchvision's RandomResizedCrop: 8 to 100 % of the area, sides as 3 : 4 to 4 : 3 (the ratio of the shorter to the
/// longer is uniform), at any place; after ten that do not fit the whole central square.
picture_part random_part(const picture& from, std::uint64_t seed);

/// The part at size × size: a triangle filter, as wide as one output pixel is apart (at least as one input pixel is),
/// first along rows, then along columns, weights in 65536ths, each result rounded to 0 … 255. `to`: channel by channel,
/// row by row, channels·size² values.
void resize_part(const picture& from, const picture_part& part, std::uint32_t size, std::span<std::int64_t> to);

} // namespace parcae
