#pragma once

// Rules that take what is cheapest now, by day, over kinds and clouds: "Analysis and Exploitation of Dynamic Pricing in
// the Public Cloud for ML Training" (DISPA'20; public code stanford-futuredata/training_on_a_dime). Pure.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace parcae::market {

struct day_price {
  std::string day; ///< "2020-02-18"
  bool is_azure = false;
  std::string zone, kind, gpu;
  double gpus = 0;
  double usd_per_h = 0;
};

/// Columns day, zone, type, gpu, gpus, usd_per_h, in their order. Throws parse_error.
std::vector<day_price> parse_day_prices(std::string_view text, bool is_azure);

/// Columns model, gpu, steps_per_s: by model, then by GPU. Throws parse_error.
std::map<std::string, std::map<std::string, double>> parse_steps_per_s(std::string_view text);

enum class dime_rule {
  base,    ///< the cheapest p3.2xlarge
  type,    ///< or p2.xlarge, of AWS
  packed,  ///< or a GPU of any instance of AWS
  cloud,   ///< or of Azure
  dynamic, ///< chosen anew each day
};

struct dime_options {
  double days = 4;            ///< of work on a V100
  bool azure_by_price = true; ///< as published: Azure's instances are compared by their price, not by that of a GPU
};

/// Mean US-dollars over the starts: the 30 days that end five before the last on which p3.2xlarge has a price.
double dime_usd(const std::vector<day_price>& prices, const std::map<std::string, double>& steps_per_s, dime_rule rule,
                const dime_options& options = {});

} // namespace parcae::market
