#include "planner/serving/pass_model.hpp"

#include "planner/cost/json_reader.hpp"

#include <algorithm>

namespace parcae::serving {

namespace {

double at(const std::vector<pass_point>& points, double rows, bool padded) {
  if (rows <= points.front().rows || points.size() == 1)
    return points.front().ms;
  const auto above = std::ranges::find_if(points, [&](const auto& x) { return x.rows >= rows; });
  if (padded && above != points.end())
    return above->ms;
  // Beyond what was measured on, as between the last two.
  const auto to = above == points.end() ? points.end() - 1 : above;
  const auto from = to - 1;
  return std::max(0.0, from->ms + (to->ms - from->ms) * (rows - from->rows) / (to->rows - from->rows));
}

} // namespace

double pass_model::longest_stage(std::uint32_t depth) const {
  return depth <= longest_by_depth.size() ? longest_by_depth[depth - 1] : (layers + depth - 1) / depth;
}

stage_times pass_model::times(std::uint32_t degree, std::uint32_t depth, std::uint32_t max_rows) const {
  const auto& layer = layer_by_degree.at(degree);
  const double share = longest_stage(depth);
  stage_times result;
  for (std::uint32_t rows = 0; rows <= max_rows; ++rows) {
    result.stage_ms.push_back(share * at(layer, rows, padded));
    result.hop_ms.push_back(at(hop, rows, padded));
  }
  if (padded)
    for (const auto& x : layer)
      result.sizes.push_back(static_cast<std::uint32_t>(x.rows));
  return result;
}

std::vector<pass_point> points_of(std::span<const measured_pass> measured, std::span<const std::uint32_t> sizes) {
  std::map<double, std::pair<double, double>> sums; // by rows: ms, shares
  for (const auto& x : measured) {
    auto& [ms, share] = sums[x.rows];
    ms += x.ms;
    share += x.share;
  }
  std::vector<pass_point> known, result;
  for (const auto& [rows, x] : sums)
    known.push_back({rows, x.first / x.second});
  if (known.empty())
    return result;
  const auto& last = known.back();
  for (const auto size : sizes)
    result.push_back(
        {static_cast<double>(size), size > last.rows ? last.ms * size / last.rows : at(known, size, false)});
  for (const auto& x : known) // also if those that compute now have not proven it
    if (std::ranges::find(result, x.rows, &pass_point::rows) == result.end())
      result.push_back(x);
  std::ranges::sort(result, {}, &pass_point::rows);
  return result;
}

pass_model passes_of(const serving_profile& profile) {
  pass_model result;
  result.name = profile.name;
  result.layers = profile.layers;
  result.max_decoding = profile.max_batch();
  result.cache_bytes = 2.0 * 2 * profile.width; // a key and a value, of two bytes
  for (const auto& [degree, batches] : profile.layer_by_degree) {
    auto& points = result.layer_by_degree[degree];
    double rows = 1;
    for (const auto& x : batches) {
      points.push_back({rows, x.token_ms * profile.factor});
      rows *= 2;
    }
    rows = serving_profile::prompt_positions;
    for (const auto& x : batches) {
      points.push_back({rows, x.prompt_ms * profile.factor});
      rows *= 2;
    }
  }
  result.hop = {{1, profile.token_hop_ms * profile.factor},
                {serving_profile::prompt_positions, profile.prompt_hop_ms * profile.factor}};
  return result;
}

pass_model parse_passes(std::string_view text) {
  const auto document = parse_json(text);
  const json_reader x(document, "");
  pass_model result;
  result.name = x["name"].text();
  result.layers = x["layers"].count(1);
  if (result.layers > 10'000)
    x["layers"].fail("must be at most 10000");
  result.padded = true;
  auto& points = result.layer_by_degree[1];
  x["passes"].each([&](const json_reader& pass) {
    points.push_back({static_cast<double>(pass["rows"].count(1)), pass["ms"].number(1e-6, 1e9)});
    if (points.size() > 1 && points.back().rows <= (points.end() - 2)->rows)
      pass.fail("must have more rows than the one before");
  });
  if (points.empty())
    x["passes"].fail("must not be empty");
  result.hop = {{1, x.number_or("hop_ms", 0)}};
  result.cache_bytes = x.number_or("cache_bytes", 0);
  return result;
}

bool is_passes(std::string_view text) {
  const auto document = parse_json(text);
  return json_reader(document, "").has("passes");
}

} // namespace parcae::serving
