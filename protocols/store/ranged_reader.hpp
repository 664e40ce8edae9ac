#pragma once

// Reading ahead, for objects that are asked for in ranges.

#include "protocols/store/store.hpp"

namespace parcae {

class ranged_reader : public object_reader {
public:
  ranged_reader(std::string place, std::uint64_t window_bytes) :
      place_(std::move(place)), window_bytes_(window_bytes) {}

  std::uint64_t size() const override { return size_; }
  void read(std::uint64_t from, std::span<std::byte> to) override;

protected:
  /// Once, before anything is read.
  void set_size(std::uint64_t x) { size_ = x; }
  const std::string& place() const { return place_; }

  /// Gets all of a range that is in the object. Throws store_error.
  virtual void fetch(std::uint64_t from, std::span<std::byte> to) = 0;

private:
  const std::string place_; ///< for people
  const std::uint64_t window_bytes_;
  std::uint64_t size_ = 0;
  std::uint64_t begin_ = 0; ///< of the window, in the object
  std::vector<std::byte> window_;
};

} // namespace parcae
