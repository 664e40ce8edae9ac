#pragma once

// How much harm was done.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace parcae {

class tally {
public:
  std::uint64_t& operator[](const std::string& what) { return counts_[what]; }

  /// For people, one each.
  std::vector<std::string> lines() const;
  /// Of what an hour must have at least; nothing before it is over. `links`: some can be cut.
  std::vector<std::string> too_few(double minutes, bool links) const;

private:
  std::uint64_t count(const std::string& what) const;

  std::map<std::string, std::uint64_t> counts_;
};

} // namespace parcae
