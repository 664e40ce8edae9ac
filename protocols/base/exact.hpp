#pragma once

// Floating-point numbers in messages between nodes.

#include <bit>
#include <cstdint>
#include <vector>

namespace parcae {

/// A number or a vector of them, carried as its bits: `f(x.step, exact(x.loss))`. CAF's own encoding of a double does
/// not end if it is infinite, and makes a finite number of NaN.
template <class T>
class exact {
public:
  explicit exact(T& x) : x_(x) {}

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, exact& x) {
    auto bits = bits_of(x.x_);
    if constexpr (Inspector::writes_state) {
      auto result = f(bits);
      x.x_ = number_of(bits);
      return result;
    } else {
      return f(bits);
    }
  }

private:
  static std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
  static double number_of(std::uint64_t x) { return std::bit_cast<double>(x); }
  static std::vector<std::uint64_t> bits_of(const std::vector<double>& x) {
    std::vector<std::uint64_t> result;
    for (auto number : x)
      result.push_back(bits_of(number));
    return result;
  }
  static std::vector<double> number_of(const std::vector<std::uint64_t>& x) {
    std::vector<double> result;
    for (auto bits : x)
      result.push_back(number_of(bits));
    return result;
  }

  T& x_;
};

} // namespace parcae
