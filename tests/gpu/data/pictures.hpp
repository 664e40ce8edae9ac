#pragma once

// JPEG and PNG files for tests, made by the libraries themselves.

// jpeglib.h needs what is before it.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace parcae {

/// Of 8 bits, pixel by pixel, with as many components as the space has. Adobe's marker comes with CMYK.
inline std::string jpeg_of(std::uint32_t width, std::uint32_t height, J_COLOR_SPACE space,
                           const std::vector<std::uint8_t>& samples, bool progressive = false) {
  jpeg_compress_struct x{};
  jpeg_error_mgr errors{};
  x.err = jpeg_std_error(&errors);
  jpeg_create_compress(&x);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&x, &bytes, &size);
  x.image_width = width;
  x.image_height = height;
  x.input_components = static_cast<int>(samples.size() / width / height);
  x.in_color_space = space;
  jpeg_set_defaults(&x);
  jpeg_set_quality(&x, 95, TRUE);
  if (progressive)
    jpeg_simple_progression(&x);
  jpeg_start_compress(&x, TRUE);
  while (x.next_scanline < height) {
    auto* row = const_cast<JSAMPROW>(samples.data() + x.next_scanline * (samples.size() / height));
    jpeg_write_scanlines(&x, &row, 1);
  }
  jpeg_finish_compress(&x);
  std::string result(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&x);
  std::free(bytes);
  return result;
}

/// `rows`: as PNG has them, big-endian where there are 16 bits; a palette of four colours for palettes: black, red,
/// green, blue.
inline std::string png_of(std::uint32_t width, std::uint32_t height, int colour, int bits,
                          const std::vector<std::uint8_t>& rows, bool interlaced = false) {
  std::string result;
  auto* png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  auto* info = png_create_info_struct(png);
  png_set_write_fn(
      png, &result,
      [](png_structp x, png_bytep from, png_size_t n) {
        static_cast<std::string*>(png_get_io_ptr(x))->append(reinterpret_cast<char*>(from), n);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, width, height, bits, colour, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  const png_color palette[4] = {{0, 0, 0}, {255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
  if (colour == PNG_COLOR_TYPE_PALETTE)
    png_set_PLTE(png, info, palette, 4);
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  for (std::uint32_t y = 0; y < height; ++y)
    pointers.push_back(const_cast<png_bytep>(rows.data() + y * (rows.size() / height)));
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return result;
}

} // namespace parcae
