#include "planner/cost/profile.hpp"

#include "planner/cost/json_reader.hpp"
#include "protocols/base/input_file.hpp"

#include <algorithm>

namespace parcae {

namespace {

using namespace std::string_view_literals;

rebuild_costs parse_rebuild(const json_reader& x) {
  rebuild_costs result;
  result.setup_ms = x.number_or("setup_ms", 35);
  const auto model = x["model"].text();
  if (model == "per_group" || model == "per_rank") {
    result.kind = model == "per_group" ? rebuild_costs::law::per_group : rebuild_costs::law::per_rank;
    const auto unit = x[model == "per_group" ? "per_group_ms" : "per_rank_ms"];
    result.add_ms = unit["add"].number();
    result.remove_ms = unit["remove"].number();
  } else if (model == "steps_of_data_parallel") {
    result.kind = rebuild_costs::law::steps;
    result.add_factor = x.number_or("add_factor", 1);
    x["steps"].each([&](const json_reader& step) {
      result.steps.push_back({step["min_data_parallel"].count(), step["remove_ms"].number()});
    });
    std::stable_sort(result.steps.begin(), result.steps.end(),
                     [](const auto& a, const auto& b) { return a.min_width > b.min_width; });
    if (result.steps.empty())
      x["steps"].fail("must not be empty");
  } else {
    x["model"].fail("is \"" + model + "\", must be per_group, per_rank or steps_of_data_parallel");
  }
  return result;
}

std::map<std::uint32_t, double> parse_by_nodes(const json_reader& x) {
  std::map<std::uint32_t, double> result;
  x.each_number([&](std::uint32_t nodes, const json_reader& value) { result[nodes] = value.number(); });
  return result;
}

} // namespace

bool profile::allowed(const shape& x) const {
  return x.width > 0 && x.depth >= min_depth && x.depth <= max_depth && !excluded_depths.contains(x.depth) &&
         !excluded_widths.contains(x.width);
}

shape profile::fastest(std::uint32_t slots) const {
  shape best;
  double most = -1;
  for (const auto& [x, rate] : samples_per_s)
    if (x.slots() <= slots && rate > most) {
      best = x;
      most = rate;
    }
  return best;
}

double profile::throughput(const shape& x) const {
  const auto found = samples_per_s.find(x);
  return found == samples_per_s.end() ? 0 : found->second;
}

double network_profile::transfer_ms(double bytes) const {
  if (bytes <= points.front().bytes)
    return points.front().ms;
  if (bytes >= points.back().bytes)
    return points.back().ms * bytes / points.back().bytes;
  const auto above = std::upper_bound(points.begin(), points.end(), bytes,
                                      [](double value, const point& p) { return value < p.bytes; });
  const auto below = above - 1;
  return below->ms + (above->ms - below->ms) * (bytes - below->bytes) / (above->bytes - below->bytes);
}

profile parse_profile(std::string_view text) {
  const auto document = parse_json(text);
  const json_reader x(document, "");
  profile result;
  result.name = x["name"].text();
  result.global_batch = x["global_batch_samples"].count(1);
  result.micro_batch = x["micro_batch_samples"].count(1);
  result.optimizer_tensors = x["optimizer_state_tensors_per_parameter"].number(0, 100);
  result.value_bytes = x["bytes_per_value"].number(1, 100);
  result.boundary_values = x.number_or("stage_boundary_values", 0);
  x["layers"].each([&](const json_reader& layer) {
    result.layers.push_back({layer["parameters"].number(), layer["forward_ms"].number(), layer["backward_ms"].number(),
                             layer["optimizer_ms"].number(), layer.number_or("activation_mib", 0)});
  });
  if (result.layers.empty() || result.layers.size() > 10'000)
    x["layers"].fail("must have 1 to 10000 elements");
  const auto depth = x["pipeline_depth"];
  result.min_depth = depth["min"].count(1);
  result.max_depth = depth["max"].count(result.min_depth);
  if (depth.has("excluded"))
    depth["excluded"].each([&](const json_reader& value) { result.excluded_depths.insert(value.count()); });
  if (x.has("data_parallel") && x["data_parallel"].has("excluded"))
    x["data_parallel"]["excluded"].each(
        [&](const json_reader& value) { result.excluded_widths.insert(value.count()); });
  x["throughput"].each([&](const json_reader& row) {
    const shape pair{row["data_parallel"].count(1), row["pipeline_depth"].count(1)};
    if (pair.width > 100'000 || pair.depth > result.layers.size())
      row.fail("is wider than 100000 or deeper than there are layers");
    if (!result.samples_per_s.emplace(pair, row["samples_per_second"].number()).second)
      row.fail("repeats " + to_string(pair));
  });
  if (std::none_of(result.samples_per_s.begin(), result.samples_per_s.end(),
                   [&](const auto& row) { return result.allowed(row.first); }))
    x["throughput"].fail("must have a pair that pipeline_depth and data_parallel allow");
  const auto costs = x["reconfiguration"];
  costs["model_build_ms_by_depth"].each_number(
      [&](std::uint32_t d, const json_reader& value) { result.model_build_ms[d] = value.number(); });
  for (const auto& [pair, rate] : result.samples_per_s)
    if (!result.model_build_ms.contains(pair.depth))
      costs["model_build_ms_by_depth"].fail("lacks depth " + std::to_string(pair.depth));
  result.rendezvous_ms = costs["rendezvous_ms"].number();
  result.process_ms = costs["process_ms"].number();
  result.extra_restart_ms = costs.number_or("extra_restart_ms", 0);
  result.checkpoint_ms = costs["checkpoint_save_and_load_ms"].number();
  result.rebuild = parse_rebuild(costs["communicator_rebuild"]);
  if (x.has("changes")) {
    const auto figures = x["changes"];
    auto& to = result.changes.emplace();
    to.link_bytes_per_ms = figures["link_bytes_per_ms"].number(1);
    to.settle_ms = figures["settle_ms"].number();
    to.loss_ms = figures["loss_ms"].number();
    to.plan_ms = figures["plan_ms"].number();
    to.prepare_ms = figures["prepare_ms"].number();
    to.transfer_ms = figures["transfer_ms"].number();
    to.activate_ms = figures["activate_ms"].number();
    to.rank_ms = figures["rank_ms"].number();
  }
  return result;
}

network_profile parse_network(std::string_view text) {
  const auto document = parse_json(text);
  const json_reader x(document, "");
  network_profile result;
  x["point_to_point"].each([&](const json_reader& row) {
    result.points.push_back({row["bytes"].number(), row["microseconds"].number() / 1000});
    if (result.points.size() > 1 && result.points.back().bytes <= (result.points.end() - 2)->bytes)
      row.fail("must have more bytes than the row before");
  });
  if (result.points.empty() || result.points.back().bytes <= 0)
    x["point_to_point"].fail("must have a row with bytes above 0");
  return result;
}

std::vector<peer_model> parse_peers(std::string_view text) {
  const auto document = parse_json(text);
  const json_reader x(document, "");
  std::vector<peer_model> result;
  x["models"].each([&](const json_reader& model) {
    peer_model entry{model["model"].text(), model["global_batch_samples"].count(1), {}};
    for (const auto* name : {"bamboo", "varuna", "oobleck"}) {
      if (!model.has(name))
        continue;
      const auto from = model[name];
      peer_system system;
      if (from.has("samples_per_second_by_nodes")) // null: the model does not fit
        system.samples_per_s = parse_by_nodes(from["samples_per_second_by_nodes"]);
      if (name == "oobleck"sv)
        system.reconfiguration_s = from["reconfiguration_s"].number();
      else
        system.restart_s = from["restart_s"].number();
      if (name == "bamboo"sv)
        system.rendezvous_s = from["global_rendezvous_s"].number();
      if (name == "varuna"sv) {
        system.checkpoint_s = from["checkpoint_s"].number();
        system.checkpoint_every_steps = from["checkpoint_every_steps"].count();
      }
      if (model.has("published_simulation_scaled_p3_samples_per_second"))
        system.published_samples_per_s = model["published_simulation_scaled_p3_samples_per_second"].number_or(name, 0);
      entry.systems.emplace(name, std::move(system));
    }
    result.push_back(std::move(entry));
  });
  return result;
}

std::string read_file(const std::string& path) {
  constexpr std::uint64_t limit = 256 << 20;
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  std::string content;
  try {
    content = contents_of(path, limit);
  } catch (const input_error& e) {
    throw parse_error(e.what());
  }
  if (content.starts_with(byte_order_mark))
    content.erase(0, byte_order_mark.size());
  return content;
}

} // namespace parcae
