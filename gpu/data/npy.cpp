#include "gpu/data/npy.hpp"

#include <charconv>
#include <stdexcept>
#include <string>
#include <string_view>

namespace parcae {

namespace {

/// A Python literal: {'descr': '<u2', 'fortran_order': False, 'shape': (7, 3), }
class literal {
public:
  explicit literal(std::string_view text) : rest_(text) {}

  bool take(char x) {
    skip();
    if (!rest_.starts_with(x))
      return false;
    rest_.remove_prefix(1);
    return true;
  }

  void want(char x) {
    if (!take(x))
      throw std::runtime_error(std::string("its header lacks a ") + x);
  }

  std::string_view text() {
    skip();
    const auto quote = rest_.empty() ? '\0' : rest_.front();
    const auto end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : rest_.npos;
    if (end == rest_.npos)
      throw std::runtime_error("its header lacks a text in quotes");
    const auto result = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return result;
  }

  std::string_view word() {
    skip();
    const auto result = rest_.substr(0, rest_.find_first_of(",} "));
    rest_.remove_prefix(result.size());
    return result;
  }

  std::uint64_t whole() {
    skip();
    std::uint64_t result = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), result);
    if (error != std::errc{})
      throw std::runtime_error("its header lacks a whole number");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return result;
  }

private:
  void skip() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }

  std::string_view rest_;
};

void take_type(std::string_view descr, npy_header& to) {
  const auto wrong = [&] {
    throw std::runtime_error("has values of type " + std::string(descr.substr(0, 20)) +
                             "; known are whole numbers, little-endian: |u1, |i1, <u2, <i2, <u4, <i4, <u8, <i8");
  };
  if (descr.size() != 3 || (descr[1] != 'u' && descr[1] != 'i'))
    wrong();
  to.is_signed = descr[1] == 'i';
  to.bytes = static_cast<unsigned>(descr[2] - '0');
  const bool known = to.bytes == 1 || to.bytes == 2 || to.bytes == 4 || to.bytes == 8;
  if (!known || !(descr[0] == '<' || (descr[0] == '|' && to.bytes == 1)))
    wrong();
}

std::vector<std::uint64_t> shape_in(literal& x) {
  std::vector<std::uint64_t> result;
  x.want('(');
  while (!x.take(')')) {
    result.push_back(x.whole());
    if (result.size() > 2)
      throw std::runtime_error("has more than two dimensions");
    if (!x.take(',')) {
      x.want(')');
      break;
    }
  }
  if (result.empty())
    throw std::runtime_error("has no dimension");
  return result;
}

} // namespace

npy_header parse_npy(std::span<const std::byte> begin, std::uint64_t file_bytes) {
  const std::string_view bytes(reinterpret_cast<const char*>(begin.data()), begin.size());
  const auto number = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])); };
  if (!bytes.starts_with("\x93NUMPY") || bytes.size() < 12 || number(6) < 1 || number(6) > 3)
    throw std::runtime_error("is not what numpy.save writes");
  const bool is_long = number(6) > 1;
  const auto text_at = is_long ? std::size_t{12} : std::size_t{10};
  const auto length = number(8) | number(9) << 8 | (is_long ? number(10) << 16 | number(11) << 24 : std::size_t{0});
  if (length > bytes.size() - text_at)
    throw std::runtime_error("its header is longer than the file, or than " + std::to_string(npy_header_limit) +
                             " bytes");
  npy_header result;
  result.values_at = text_at + length;
  literal text(bytes.substr(text_at, length));
  bool has_type = false, has_order = false;
  text.want('{');
  while (!text.take('}')) {
    const auto key = text.text();
    text.want(':');
    if (key == "descr") {
      take_type(text.text(), result);
      has_type = true;
    } else if (key == "fortran_order") {
      has_order = text.word() == "False";
      if (!has_order)
        throw std::runtime_error("is stored column by column; numpy.ascontiguousarray makes it row by row");
    } else if (key == "shape") {
      result.shape = shape_in(text);
    } else {
      throw std::runtime_error("its header has an unknown entry");
    }
    if (!text.take(',')) {
      text.want('}');
      break;
    }
  }
  if (!has_type || !has_order || result.shape.empty())
    throw std::runtime_error("its header lacks an entry");
  std::uint64_t values = 1, all = 0;
  for (auto extent : result.shape)
    if (__builtin_mul_overflow(values, extent, &values))
      throw std::runtime_error("has a shape that is too large to be true");
  if (__builtin_mul_overflow(values, std::uint64_t{result.bytes}, &all) || all > file_bytes ||
      result.values_at != file_bytes - all)
    throw std::runtime_error("has " + std::to_string(file_bytes) + " bytes; its header says another number of values");
  return result;
}

} // namespace parcae
