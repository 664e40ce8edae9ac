#pragma once

// Who may ask: keys in a file, one a line.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

class api_keys {
public:
  /// None: everybody may.
  api_keys() = default;
  /// Lines that are empty or begin with # are none. Throws std::runtime_error with one line: it cannot be read, has no
  /// key, or one of less than 16 or more than 256 characters.
  explicit api_keys(const std::filesystem::path& file);

  bool asks_for_none() const { return all_.empty(); }
  /// By the value of the header Authorization. How long it takes does not depend on what a key has.
  bool admit(std::string_view authorization) const;

private:
  std::vector<std::string> all_;
};

} // namespace parcae
