#pragma once

// What every target shares. A target is a file with one function, which hands any bytes to a decoder and holds it to
// its promises; libFuzzer makes the bytes up (run), or they are those of the corpus (replay.cpp).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace parcae {

/// A promise that is not kept ends the program, as a crash does.
inline void promise(bool kept, const char* what) {
  if (kept)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Takes values off the front of the bytes; zeros where there are too few.
class fuzz_input {
public:
  fuzz_input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T result{};
    const auto size = std::min(sizeof result, rest_.size());
    std::memcpy(&result, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return result;
  }

  /// Up to the next line break, or all.
  std::string_view take_line() {
    const auto all = as_text(rest_.data(), rest_.size());
    const auto line = all.substr(0, all.find('\n'));
    rest_ = rest_.subspan(std::min(rest_.size(), line.size() + 1));
    return line;
  }

  std::string_view rest() const { return as_text(rest_.data(), rest_.size()); }

private:
  std::span<const std::uint8_t> rest_;
};

} // namespace parcae
