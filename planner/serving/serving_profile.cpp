#include "planner/serving/serving_profile.hpp"

#include "planner/cost/json_reader.hpp"

namespace parcae::serving {

namespace {

constexpr std::uint32_t most_batch = 256;
constexpr std::uint32_t most_degree = 64;
constexpr double most_ms = 1e9;

std::vector<batch_times> batches_of(const json_reader& from) {
  std::vector<batch_times> result;
  for (std::uint32_t batch = 1; batch <= most_batch; batch *= 2) {
    const auto key = "bsz-" + std::to_string(batch);
    if (batch > 1 && !from.has(key.c_str()))
      break;
    const auto x = from[key.c_str()];
    result.push_back({x["init"].number(1e-6, most_ms), x["incr"].number(1e-6, most_ms)});
  }
  return result;
}

} // namespace

serving_profile parse_serving_profile(std::string_view text) {
  const auto document = parse_json(text);
  const json_reader x(document, "");
  serving_profile result;
  result.name = x["name"].text();
  result.layers = x["layer_num"].count(1);
  result.padded_layers = x["padded_layer_num"].count(result.layers);
  if (result.padded_layers > 10'000)
    x["padded_layer_num"].fail("must be at most 10000");
  result.width = x["hidden_size"].count(1);
  result.max_degree = x["max_tp"].count(1);
  if (result.max_degree > most_degree)
    x["max_tp"].fail("must be at most " + std::to_string(most_degree));
  result.factor = x["final_fix_factor"].number(1e-3, 1e3);
  result.prompt_hop_ms = x["pp_init_comm"].number(0, most_ms);
  result.token_hop_ms = x["pp_incr_comm"].number(0, most_ms);
  x["embed"].each([&](const json_reader& ms) { result.embedding_ms.push_back(ms.number(0, most_ms)); });
  for (std::uint32_t degree = 1; degree <= result.max_degree; degree *= 2) {
    const auto key = "tp-" + std::to_string(degree);
    auto times = batches_of(x[key.c_str()]);
    if (!result.layer_by_degree.empty() && times.size() != result.layer_by_degree.at(1).size())
      x[key.c_str()].fail("has other batches than tp-1");
    result.layer_by_degree.emplace(degree, std::move(times));
  }
  const auto batches = result.layer_by_degree.at(1).size();
  if (result.embedding_ms.size() < batches)
    x["embed"].fail("must have " + std::to_string(batches) + " elements, one for each batch");
  result.embedding_ms.resize(batches);
  return result;
}

} // namespace parcae::serving
