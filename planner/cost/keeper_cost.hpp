#pragma once

// What snapshots to keepers cost, and how far what keepers hold is behind. Pure.

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// Who keeps what.
struct keeper_setup {
  std::uint32_t keepers = 1; ///< that send what no worker holds any more
  std::uint32_t copies = 1;  ///< keepers that hold each layer, as far as there are as many
  /// Steps between two snapshots, or more: there is never more than one on its way. 0: as often as links allow.
  double every = 10;
  double share_of_link = 0.5;     ///< that a sender's then take at most
  bool at_once = false;           ///< versions are taken to be there when they are made
  bool processors = false;        ///< ranks copy themselves; else devices do it behind their steps
  double copy_bytes_per_ms = 2e6; ///< within a rank's memory, or out of a device
};

class keeper_cost {
public:
  /// `layer_bytes`: state of each layer. Throws std::invalid_argument if the setup means nothing.
  keeper_cost(const keeper_setup& setup, std::span<const double> layer_bytes, double link_bytes_per_ms);

  /// From a snapshot's commit until keepers have all of it: by their links, or that of the rank that sends most.
  /// `slice_bytes`: what that rank has to copy once.
  double way_ms(double slice_bytes) const;

  /// Steps between two snapshots.
  double period(double slice_bytes, double step_ms) const;

  /// Mean number of steps that keepers lack at a random moment: half a period, and those on the way.
  double lag(double slice_bytes, double step_ms) const;

  /// For each snapshot nobody trains that long: a processor copies itself, of a device's copy what outlasts a step.
  double copy_ms(double slice_bytes, double step_ms) const;

  /// Most that a keeper sends if everything starts from keepers, with `width` replicas of each layer.
  double sent_bytes(std::uint32_t width) const;

private:
  double copies() const;

  keeper_setup setup_;
  double all_bytes_ = 0;
  double largest_bytes_ = 0; ///< layer
  double link_bytes_per_ms_;
};

} // namespace parcae
