#pragma once

// Seeds for all random numbers of a job.

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace parcae {

/// A well-mixed 64-bit seed from the job's seed, what it is for, and where (splitmix64's finaliser after each word).
constexpr std::uint64_t mix_seed(std::uint64_t seed, std::string_view purpose,
                                 std::initializer_list<std::uint64_t> where) {
  auto finalise = [](std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  };
  std::uint64_t state = finalise(seed);
  for (char c : purpose)
    state = finalise(state ^ static_cast<unsigned char>(c));
  for (auto x : where)
    state = finalise(state ^ finalise(x));
  return state;
}

} // namespace parcae
