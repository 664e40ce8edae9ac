#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

/// A duration as people write it in job files and on the command line: a whole number and a unit, "ms", "s", "m" or
/// "h", without spaces ("500ms", "30s", "2m"). Nothing if it is malformed or does not fit.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

/// In the largest unit that divides it, as parse_duration reads it: "90s", "2m", "1500ms".
std::string to_string(std::chrono::milliseconds x);

/// A size as people write it: a whole number and a unit, "B", "KiB", "MiB", "GiB" or "TiB", without spaces ("512MiB").
/// Nothing if it is malformed or does not fit.
std::optional<std::uint64_t> parse_size(std::string_view text);

/// In the largest unit that divides it, as parse_size reads it: "1GiB".
std::string text_of_size(std::uint64_t bytes);

/// How long something took or will take, for people: whole seconds up to a minute, then two units: "12s", "2m05s",
/// "1h02m", "3d04h". Microseconds, below 0: "0s".
std::string text_of_age(std::int64_t us);

/// The rate of a link as people write it, in bytes per millisecond: a number above 0 and "kb/s", "Mb/s", "Gb/s" (bits)
/// or "kB/s", "MB/s", "GB/s" (bytes), without spaces, in powers of 1000 ("10Gb/s", "1.2GB/s"). Nothing if it is
/// malformed.
std::optional<double> parse_link_rate(std::string_view text);

} // namespace parcae
