#pragma once

// The clouds whose metadata servers say when an instance will be taken, and how to tell which one a machine is of.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

enum class cloud : std::uint8_t {
  none,  ///< nobody is asked
  auto_, ///< whichever it turns out to be
  aws,
  gcp,
  azure,
};

/// As it is written on a command line: "none", "auto", "aws", "gcp", "azure".
std::string to_string(cloud x);

/// Nothing if it is none of these.
std::optional<cloud> parse_cloud(std::string_view text);

/// By what the firmware says of the machine, in files such as `sys_vendor`. none: it is of no cloud that is known here.
/// Nothing: there are no such files, which says nothing. Never waits.
std::optional<cloud> cloud_of_dmi(const std::filesystem::path& folder);

} // namespace parcae
