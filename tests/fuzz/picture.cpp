// JPEG and PNG files, and parts of what they have.

#include "gpu/data/picture.hpp"

#include "tests/fuzz/fuzz.hpp"

#include <stdexcept>
#include <vector>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const auto channels = size % 2 == 0 ? 1u : 3u;
  try {
    const auto x = decode_picture(std::as_bytes(std::span(data, size)), channels);
    promise(x.width > 0 && x.height > 0 && x.channels == channels, "a picture has pixels");
    promise(std::uint64_t{x.width} * x.height <= picture_pixel_limit, "and not too many");
    promise(x.samples.size() == std::size_t{x.width} * x.height * x.channels, "all of them");
    if (x.samples.size() > 1 << 20)
      return 0;
    std::vector<std::int64_t> to(channels * 16);
    for (const auto& part : {central_part(x, 4, 5), random_part(x, size)}) {
      promise(part.width > 0 && part.x + part.width <= x.width && part.height > 0 && part.y + part.height <= x.height,
              "a part is within the picture");
      resize_part(x, part, 4, to);
      for (auto value : to)
        promise(value >= 0 && value <= 255, "a pixel is a byte");
    }
  } catch (const std::runtime_error&) {
  }
  return 0;
}
