#pragma once

// Headers of safetensors files (https://github.com/huggingface/safetensors, "Format"): eight bytes with the length of a
// JSON object, the object, then the tensors' bytes.

#include "protocols/store/store.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// No header is larger, bytes. The format's own library reads six times as much; but of such text a reader makes twenty
/// times as many bytes in memory, and the header of a model of 50,000 tensors has 8 MB.
inline constexpr std::uint64_t safetensors_header_limit_bytes = 16'000'000;

/// A tensor to be written, or as it is expected.
struct safetensors_entry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string type = "F32"; ///< of the format's types those that read knows
};

/// The bytes before the tensors of a file. The tensors follow in the order given, without gaps, little-endian. Throws
/// std::length_error if they are more than a reader takes.
std::string safetensors_header(const std::vector<safetensors_entry>& tensors,
                               const std::map<std::string, std::string>& metadata);

/// A file, or another object, open for reading. As the format wants it, its tensors lie one after the other, without
/// gaps, up to its end. Throws std::runtime_error with one line that names it and what is wrong with it; store_error if
/// that is its store. Not thread-safe.
class safetensors_file {
public:
  /// Reads the header only.
  explicit safetensors_file(const std::filesystem::path& path);
  /// `name`: for messages.
  safetensors_file(std::unique_ptr<object_reader> from, std::string name);

  std::vector<std::string> names() const; ///< of its tensors, sorted

  /// A tensor as it is there; throws if it is not.
  safetensors_entry entry(const std::string& name) const;

  /// Bytes of a tensor's values.
  std::uint64_t size_of(const std::string& name) const;

  /// Whether a tensor is there, and has this type and shape; throws if not.
  void require(const safetensors_entry& tensor) const;

  /// Reads the values of a tensor, which must have this type and shape, to `to`.
  void read(const safetensors_entry& tensor, std::byte* to);

  /// Reads a tensor of a type of real numbers with at most 32 bits, F32, BF16 or F16, as float32, which is exact. `to`
  /// has room for as many values as the tensor has.
  void read_as_float(const std::string& name, std::span<float> to);

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

private:
  struct place {
    std::string type;
    std::vector<std::int64_t> shape;
    std::uint64_t begin = 0; ///< in the file
    std::uint64_t end = 0;
  };

  void read_header();
  void check_places(std::uint64_t begin, std::uint64_t end) const;
  const place& find(const std::string& name) const;
  [[noreturn]] void fail(const std::string& what) const;

  void read_at(std::uint64_t from, std::span<std::byte> to);

  std::string name_;
  std::unique_ptr<object_reader> file_;
  std::map<std::string, place> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A number of 16 bits as float32: of IEEE 754's binary16, and of bfloat16. Exact.
float float_of_half(std::uint16_t bits);
float float_of_bfloat16(std::uint16_t bits);

} // namespace parcae
