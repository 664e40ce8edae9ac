#include "protocols/store/ranged_reader.hpp"

#include <algorithm>
#include <cstring>

namespace parcae {

namespace {

constexpr std::uint64_t max_at_once = std::uint64_t{64} << 20;

} // namespace

void ranged_reader::read(std::uint64_t from, std::span<std::byte> to) {
  if (from > size_ || to.size() > size_ - from)
    throw store_error(store_trouble::damaged, place_ + " ends before byte " + std::to_string(from + to.size()));
  while (!to.empty()) {
    const auto here = from - begin_; // beyond the window if it lies before it
    if (from >= begin_ && here < window_.size()) {
      const auto known = std::min<std::uint64_t>(to.size(), window_.size() - here);
      std::memcpy(to.data(), window_.data() + here, known);
      from += known;
      to = to.subspan(known);
    } else if (to.size() >= window_bytes_) {
      const auto next = to.first(std::min<std::uint64_t>(to.size(), max_at_once));
      fetch(from, next);
      from += next.size();
      to = to.subspan(next.size());
    } else {
      window_.resize(std::min(window_bytes_, size_ - from));
      begin_ = size_; // nothing, if it fails
      fetch(from, window_);
      begin_ = from;
    }
  }
}

} // namespace parcae
