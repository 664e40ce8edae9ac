// JPEG by libjpeg-turbo, PNG by libpng. Their errors come by longjmp: between setjmp and the library's calls there is
// nothing to be destroyed.

#include "gpu/data/picture.hpp"

// These need what is before them.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace parcae {

namespace {

constexpr int max_scans = 100;

void check_extent(std::uint64_t width, std::uint64_t height) {
  if (width == 0 || height == 0 || width * height > picture_pixel_limit)
    throw std::runtime_error("has " + std::to_string(width) + "×" + std::to_string(height) + " pixels, may have " +
                             std::to_string(picture_pixel_limit));
}

struct jpeg_errors {
  jpeg_error_mgr base; ///< first: the library hands out a pointer to it
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void fail_jpeg(j_common_ptr x) {
  auto* errors = reinterpret_cast<jpeg_errors*>(x->err);
  x->err->format_message(x, errors->text);
  std::longjmp(errors->back, 1);
}

/// What the library would fill with gray is an error.
void warn_jpeg(j_common_ptr x, int level) {
  if (level >= 0)
    return;
  const auto code = x->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC)
    fail_jpeg(x);
}

void watch_scans(j_common_ptr x) {
  if (reinterpret_cast<j_decompress_ptr>(x)->input_scan_number <= max_scans)
    return;
  auto* errors = reinterpret_cast<jpeg_errors*>(x->err);
  std::snprintf(errors->text, sizeof errors->text, "has more than %d scans", max_scans);
  std::longjmp(errors->back, 1);
}

class jpeg_reader {
public:
  explicit jpeg_reader(std::span<const std::byte> file) : file_(file) {
    x_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = fail_jpeg;
    errors_.base.emit_message = warn_jpeg;
    progress_.progress_monitor = watch_scans;
  }
  ~jpeg_reader() { jpeg_destroy_decompress(&x_); }
  jpeg_reader(const jpeg_reader&) = delete;
  jpeg_reader& operator=(const jpeg_reader&) = delete;

  picture read() {
    if (!begin())
      throw std::runtime_error(errors_.text);
    check_extent(x_.image_width, x_.image_height);
    const bool cmyk = x_.jpeg_color_space == JCS_CMYK || x_.jpeg_color_space == JCS_YCCK;
    x_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    x_.dct_method = JDCT_ISLOW;
    const std::size_t components = cmyk ? 4 : 3, pixels = std::size_t{x_.image_width} * x_.image_height;
    picture result{x_.image_width, x_.image_height, 3, std::vector<std::uint8_t>(pixels * components)};
    if (!rows(result.samples.data(), result.width * components))
      throw std::runtime_error(errors_.text);
    if (cmyk)
      make_rgb(result);
    return result;
  }

private:
  bool begin() {
    if (setjmp(errors_.back) != 0)
      return false;
    jpeg_create_decompress(&x_);
    x_.progress = &progress_;
    jpeg_mem_src(&x_, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
    jpeg_read_header(&x_, TRUE);
    return true;
  }

  bool rows(std::uint8_t* to, std::size_t row_bytes) {
    if (setjmp(errors_.back) != 0)
      return false;
    jpeg_start_decompress(&x_);
    while (x_.output_scanline < x_.output_height) {
      JSAMPROW row = to + x_.output_scanline * row_bytes;
      jpeg_read_scanlines(&x_, &row, 1);
    }
    jpeg_finish_decompress(&x_);
    return true;
  }

  /// Programs of Adobe store the inks inverted.
  void make_rgb(picture& x) const {
    const auto pixels = x.samples.size() / 4;
    for (std::size_t i = 0; i < pixels; ++i)
      for (std::size_t c = 0; c < 3; ++c) {
        const unsigned ink = x.samples[4 * i + c], black = x.samples[4 * i + 3];
        const auto light = x_.saw_Adobe_marker ? ink * black : (255 - ink) * (255 - black);
        x.samples[3 * i + c] = static_cast<std::uint8_t>((light + 127) / 255);
      }
    x.samples.resize(3 * pixels);
  }

  std::span<const std::byte> file_;
  jpeg_decompress_struct x_{};
  jpeg_errors errors_{};
  jpeg_progress_mgr progress_{};
};

class png_reader {
public:
  explicit png_reader(std::span<const std::byte> file) : rest_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, png_const_charp) {});
    if (png_)
      info_ = png_create_info_struct(png_);
  }
  ~png_reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  png_reader(const png_reader&) = delete;
  png_reader& operator=(const png_reader&) = delete;

  picture read() {
    if (!info_)
      throw std::bad_alloc();
    if (!begin())
      throw std::runtime_error(text_);
    picture result{png_get_image_width(png_, info_), png_get_image_height(png_, info_), 3, {}};
    check_extent(result.width, result.height);
    if (!transform() || png_get_rowbytes(png_, info_) != std::size_t{3} * result.width)
      throw std::runtime_error(*text_ ? text_ : "has another kind of pixels than PNG knows");
    result.samples.resize(std::size_t{3} * result.width * result.height);
    std::vector<png_bytep> all(result.height);
    for (std::size_t y = 0; y < all.size(); ++y)
      all[y] = result.samples.data() + y * 3 * result.width;
    if (!rows(all.data()))
      throw std::runtime_error(text_);
    return result;
  }

private:
  static void fail(png_structp png, png_const_charp text) {
    auto* self = static_cast<png_reader*>(png_get_error_ptr(png));
    std::snprintf(self->text_, sizeof self->text_, "%s", text);
    png_longjmp(png, 1);
  }

  static void take(png_structp png, png_bytep to, png_size_t count) {
    auto* self = static_cast<png_reader*>(png_get_io_ptr(png));
    if (count > self->rest_.size())
      png_error(png, "is truncated");
    std::memcpy(to, self->rest_.data(), count);
    self->rest_ = self->rest_.subspan(count);
  }

  bool begin() {
    if (setjmp(png_jmpbuf(png_)) != 0)
      return false;
    png_set_read_fn(png_, this, take);
    png_set_user_limits(png_, 65'500, 65'500);
    png_set_chunk_cache_max(png_, 100);
    png_set_chunk_malloc_max(png_, 1 << 20);
    png_read_info(png_, info_);
    return true;
  }

  bool transform() {
    if (setjmp(png_jmpbuf(png_)) != 0)
      return false;
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_scale_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool rows(png_bytepp to) {
    if (setjmp(png_jmpbuf(png_)) != 0)
      return false;
    png_read_image(png_, to);
    return true;
  }

  std::span<const std::byte> rest_;
  char text_[200] = {};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

void make_gray(picture& x) {
  const auto pixels = x.samples.size() / 3;
  for (std::size_t i = 0; i < pixels; ++i) {
    const auto* from = x.samples.data() + 3 * i;
    x.samples[i] =
        static_cast<std::uint8_t>((19'595u * from[0] + 38'470u * from[1] + 7'471u * from[2] + 32'768u) >> 16);
  }
  x.samples.resize(pixels);
  x.channels = 1;
}

} // namespace

picture decode_picture(std::span<const std::byte> file, std::uint32_t channels) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  picture result;
  if (bytes.starts_with("\xff\xd8\xff"))
    result = jpeg_reader(file).read();
  else if (bytes.starts_with("\x89PNG\r\n\x1a\n"))
    result = png_reader(file).read();
  else
    throw std::runtime_error("is neither JPEG nor PNG");
  if (channels == 1)
    make_gray(result);
  return result;
}

} // namespace parcae
