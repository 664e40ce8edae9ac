#pragma once

// What is known of a workload on a kind of machine: layers, throughput by (D, P), costs of reconfiguration. Read from
// JSON, as `parcae profile` writes it (deploy/profiles). Pure values; parsing throws parse_error and nothing else.

#include "protocols/values/costs.hpp"
#include "protocols/values/shape.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Input that cannot be used; what() names the line or the key, and what is wrong with it.
struct parse_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct layer_profile {
  double parameters = 0;     ///< number of values
  double forward_ms = 0;     ///< one micro-batch
  double backward_ms = 0;    ///< one micro-batch
  double optimizer_ms = 0;   ///< one step
  double activation_mib = 0; ///< kept from forward to backward
};

/// Whether instances were added, removed or neither, for the cost of a rebuild.
enum class change : std::uint8_t { add, remove, none };

/// How long new communicators take. `none` costs as much as `remove`.
struct rebuild_costs {
  enum class law : std::uint8_t {
    per_group, ///< (D + P + 1 + D·P) · unit
    per_rank,  ///< D · P · unit
    steps,     ///< by D, from a table
  };
  struct step {
    std::uint32_t min_width = 0;
    double remove_ms = 0;
  };
  law kind = law::per_rank;
  double setup_ms = 35;
  double add_ms = 0;       ///< unit, per group or rank
  double remove_ms = 0;    ///< unit, per group or rank
  std::vector<step> steps; ///< largest width first
  double add_factor = 1;   ///< steps only
};

struct profile {
  std::string name;
  std::uint32_t global_batch = 0; ///< samples
  std::uint32_t micro_batch = 0;  ///< samples
  double optimizer_tensors = 2;   ///< optimizer state per parameter
  double value_bytes = 4;
  double boundary_values = 0; ///< values that one micro-batch sends over a stage boundary
  std::vector<layer_profile> layers;
  std::uint32_t min_depth = 1;
  std::uint32_t max_depth = 1;
  std::set<std::uint32_t> excluded_depths;
  std::set<std::uint32_t> excluded_widths;
  std::map<shape, double> samples_per_s;
  std::map<std::uint32_t, double> model_build_ms; ///< by depth
  double rendezvous_ms = 0;
  double process_ms = 0;
  double extra_restart_ms = 0;
  double checkpoint_ms = 0; ///< save and load
  rebuild_costs rebuild;
  std::optional<change_figures> changes; ///< of this project's own choreography, where it was measured

  /// Whether the pair may be used at all; it may be missing from the throughput table nevertheless.
  bool allowed(const shape& x) const;

  /// Bytes of state (parameters and optimizer tensors) per parameter.
  double state_bytes_per_parameter() const { return (1 + optimizer_tensors) * value_bytes; }

  /// The fastest pair of the table for this many slots; the first in order of (D, P) among equals; width 0 if none
  /// fits.
  shape fastest(std::uint32_t slots) const;

  double throughput(const shape& x) const;
};

/// Duration of a transfer between two instances by size.
struct network_profile {
  struct point {
    double bytes = 0;
    double ms = 0;
  };
  std::vector<point> points; ///< at least one, bytes rising

  /// Linear between the points; the first value below them, proportional to bytes above them.
  double transfer_ms(double bytes) const;
};

profile parse_profile(std::string_view json);
network_profile parse_network(std::string_view json);

/// One system of the peers' file: samples/s by number of nodes and what reconfiguring costs. Times in seconds; 0 if it
/// has none.
struct peer_system {
  std::map<std::uint32_t, double> samples_per_s; ///< by nodes; empty: the model does not fit
  double restart_s = 0;
  double rendezvous_s = 0;
  double checkpoint_s = 0;
  std::uint32_t checkpoint_every_steps = 0;
  double reconfiguration_s = 0;
  double published_samples_per_s = 0; ///< what its authors' simulation gives on their trace
};

struct peer_model {
  std::string name;
  std::uint32_t global_batch = 0;
  std::map<std::string, peer_system> systems; ///< "bamboo", "varuna", "oobleck"
};

std::vector<peer_model> parse_peers(std::string_view json);

/// The file's content. Throws parse_error if it cannot be read or is larger than 256 MiB.
std::string read_file(const std::string& path);

} // namespace parcae
