#pragma once

namespace parcae {

/// Where snapshots come as often as links allow: of a processor's time, for copying them. What follows takes over
/// twenty times as much: checksums, encryption and the kernel's part, here and at a keeper that may be on a machine
/// that trains.
inline constexpr double copying_share = 0.0005;

} // namespace parcae
