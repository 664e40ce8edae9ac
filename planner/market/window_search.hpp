#pragma once

// Which spot instances of several kinds train a model by a given time for least money: spotDNN's window search
// ("spotDNN: Provisioning Spot Instances for Predictable Distributed DNN Training in the Cloud", IWQoS'23; public code
// icloud-ecnu/spotDNN). Its model of a step is for ResNet-110 under asynchronous parameter servers. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parcae::market {

/// A kind of instance, as profiled.
struct spotdnn_kind {
  std::string name;
  unsigned gpus = 0;
  unsigned quota = 0; ///< instances of it at most
  double usd_per_h = 0;
  double samples_per_s = 0;
  double batch_per_gpu = 0;
};

struct spotdnn_choice {
  std::vector<std::pair<std::string, unsigned>> instances; ///< by kind, the fastest first
  double seconds = 0;
  double usd = 0;
};

/// Columns type, gpus, quota, spot_usd_per_h, samples_per_s, batch_per_gpu. Throws parse_error.
std::vector<spotdnn_kind> parse_spotdnn(std::string_view text);

/// The cheapest run of neighbours, by time of a step, that reaches the loss in time; none if there is none.
std::optional<spotdnn_choice> window_search(const std::vector<spotdnn_kind>& kinds, double loss, double seconds);

} // namespace parcae::market
