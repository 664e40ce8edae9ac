#include "gpu/checkpoint/safetensors.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace json = boost::json;

namespace {

constexpr std::uint64_t alignment = 8; ///< of the first tensor; the header is padded with spaces

static_assert(std::endian::native == std::endian::little);

/// Bytes of a value; 0: a type that is not known.
std::uint64_t size_of_type(std::string_view type) {
  return type == "F32" || type == "I32"    ? 4
         : type == "F64" || type == "I64"  ? 8
         : type == "BF16" || type == "F16" ? 2
         : type == "BOOL" || type == "U8"  ? 1
                                           : 0;
}

/// Bytes of a tensor; empty if the shape is negative or too large to be true.
std::optional<std::uint64_t> bytes_of(const std::vector<std::int64_t>& shape, std::string_view type = "F32") {
  std::uint64_t bytes = size_of_type(type);
  for (auto extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      return std::nullopt;
  return bytes;
}

} // namespace

std::string safetensors_header(const std::vector<safetensors_entry>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  json::object header;
  if (!metadata.empty()) {
    json::object all;
    for (const auto& [key, value] : metadata)
      all[key] = value;
    header["__metadata__"] = std::move(all);
  }
  std::uint64_t begin = 0;
  for (const auto& tensor : tensors) {
    const auto end = begin + bytes_of(tensor.shape, tensor.type).value();
    header[tensor.name] = {{"dtype", tensor.type},
                           {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {begin, end}}};
    begin = end;
  }
  auto text = json::serialize(header);
  text.append((alignment - text.size() % alignment) % alignment, ' ');
  const std::uint64_t length = text.size();
  if (length > safetensors_header_limit_bytes)
    throw std::length_error("too many tensors for one safetensors file");
  std::string result(sizeof length, '\0');
  std::memcpy(result.data(), &length, sizeof length);
  return result + text;
}

safetensors_file::safetensors_file(const std::filesystem::path& path) :
    safetensors_file(open_file(path), path.string()) {}

safetensors_file::safetensors_file(std::unique_ptr<object_reader> from, std::string name) :
    name_(std::move(name)), file_(std::move(from)) {
  try {
    read_header();
  } catch (const boost::system::system_error& e) { // the JSON library: no JSON, or another type than expected
    fail(std::string("has a malformed header: ") + e.what());
  } catch (const std::logic_error&) { // the JSON library: another type, or a key or an element is not there
    fail("has a malformed header");
  }
}

void safetensors_file::read_at(std::uint64_t from, std::span<std::byte> to) {
  if (from > file_->size() || to.size() > file_->size() - from)
    fail("was cut short");
  file_->read(from, to);
}

void safetensors_file::read_header() {
  const auto size = file_->size();
  std::uint64_t length = 0;
  if (size < sizeof length)
    fail("is too short for a safetensors file");
  read_at(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > safetensors_header_limit_bytes || length > size - sizeof length)
    fail("is not a safetensors file, or was cut short");
  std::string text(length, '\0');
  read_at(sizeof length, std::as_writable_bytes(std::span(text)));
  const auto data = sizeof length + length;
  const auto header = json::parse(text, {}, {.max_depth = 4});
  for (const auto& [name, value] : header.as_object()) {
    if (name == "__metadata__") {
      for (const auto& [key, text_value] : value.as_object())
        metadata_[std::string(key)] = std::string(text_value.as_string());
      continue;
    }
    const auto& tensor = value.as_object();
    place x;
    x.type = tensor.at("dtype").as_string();
    if (size_of_type(x.type) == 0)
      fail("has a tensor " + std::string(name) + " of a type that is not known");
    for (const auto& extent : tensor.at("shape").as_array())
      x.shape.push_back(extent.to_number<std::int64_t>());
    const auto& offsets = tensor.at("data_offsets").as_array();
    const auto begin = offsets.at(0).to_number<std::uint64_t>(), end = offsets.at(1).to_number<std::uint64_t>();
    if (begin > end || end > size - data || bytes_of(x.shape, x.type) != end - begin)
      fail("has a tensor " + std::string(name) + " whose place is not in the file, or of another size");
    x.begin = data + begin;
    x.end = data + end;
    tensors_.emplace(std::string(name), std::move(x));
  }
  check_places(data, size);
}

void safetensors_file::check_places(std::uint64_t begin, std::uint64_t end) const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const auto& [name, x] : tensors_)
    places.emplace_back(x.begin, x.end);
  std::ranges::sort(places);
  for (const auto& [first, last] : places) {
    if (first != begin)
      fail("has tensors that overlap, or a gap between them");
    begin = last;
  }
  if (begin != end)
    fail("has more bytes than its tensors, or was not closed");
}

std::vector<std::string> safetensors_file::names() const {
  std::vector<std::string> result;
  for (const auto& x : tensors_)
    result.push_back(x.first);
  return result;
}

safetensors_entry safetensors_file::entry(const std::string& name) const {
  const auto& x = find(name);
  return {name, x.shape, x.type};
}

const safetensors_file::place& safetensors_file::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    fail("has no tensor " + name);
  return found->second;
}

std::uint64_t safetensors_file::size_of(const std::string& name) const {
  const auto& x = find(name);
  return x.end - x.begin;
}

void safetensors_file::require(const safetensors_entry& tensor) const {
  const auto& x = find(tensor.name);
  if (x.type != tensor.type)
    fail("has a tensor " + tensor.name + " of another type");
  if (x.shape != tensor.shape)
    fail("has a tensor " + tensor.name + " of another shape");
}

void safetensors_file::read(const safetensors_entry& tensor, std::byte* to) {
  require(tensor);
  const auto& x = find(tensor.name);
  read_at(x.begin, {to, x.end - x.begin});
}

void safetensors_file::read_as_float(const std::string& name, std::span<float> to) {
  const auto& x = find(name);
  const auto bytes = std::as_writable_bytes(to);
  const bool whole = x.type == "F32", half = x.type == "F16";
  if (!whole && !half && x.type != "BF16")
    fail("has a tensor " + name + " of type " + x.type + "; parameters are F32, BF16 or F16");
  const auto size = (x.end - x.begin) / size_of_type(x.type) * sizeof(float);
  if (size != bytes.size())
    throw std::logic_error("tensor " + name + " into another number of values");
  // Narrow numbers are read into the second half of their room, and widened from its beginning.
  const auto stored = bytes.last(x.end - x.begin);
  read_at(x.begin, stored);
  if (whole)
    return;
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, stored.data() + i * sizeof bits, sizeof bits);
    to[i] = half ? float_of_half(bits) : float_of_bfloat16(bits);
  }
}

float float_of_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

float float_of_half(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 0x1fu,
                      fraction = bits & 0x3ffu;
  if (exponent == 0) { // zeros and subnormals: multiples of 2^-24
    const auto magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24f);
    return std::bit_cast<float>(sign | magnitude);
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + (127 - 15); // infinities and NaN keep their fraction
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

void safetensors_file::fail(const std::string& what) const {
  throw std::runtime_error(name_ + " " + what);
}

} // namespace parcae
