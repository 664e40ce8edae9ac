#pragma once

#include <string_view>

namespace parcae {

/// Of all programs, also those that load none of it; what links LibTorch compares.
inline constexpr std::string_view libtorch_version = "2.11.0";

} // namespace parcae
