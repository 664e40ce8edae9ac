#include "runtime/lab/profile_report.hpp"

#include "runtime/view/status_json.hpp"

#include <boost/json.hpp>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <set>

namespace parcae {

namespace {

namespace json = boost::json;

constexpr double mib = 1 << 20;
constexpr std::size_t rows_shown = 12;

json::array layers_of(const job_measurements& x) {
  json::array result;
  for (const auto& layer : x.layers) {
    auto entry = object_of(layer);
    entry["parameters"] = layer.gradient_bytes / sizeof(float);
    entry["activation_mib"] = static_cast<double>(layer.activation_bytes) / mib;
    result.push_back(std::move(entry));
  }
  return result;
}

json::array rows_of(const job_specification& job, const std::vector<configuration>& table) {
  json::array result;
  for (const auto& x : table)
    result.push_back({{"data_parallel", x.width},
                      {"pipeline_depth", x.depth},
                      {"iteration_ms", job.global_batch * 1000.0 / x.samples_per_s},
                      {"samples_per_second", x.samples_per_s},
                      {"samples_per_second_low", x.low_samples_per_s},
                      {"samples_per_second_high", x.high_samples_per_s},
                      {"measured", x.measured_steps > 0}});
  return result;
}

json::object link_of(const link_measurement& x) {
  json::array points;
  for (const auto& p : x.points)
    points.push_back({{"bytes", p.bytes}, {"microseconds", 1000 * p.ms}});
  return {{"latency_ms", x.latency_ms},
          {"bytes_per_ms", x.bytes_per_ms},
          {"message_cpu_ms", x.message_ms},
          {"message_cpu_ms_per_byte", x.message_ms_per_byte},
          {"all_reduce_cpu_ms_per_byte", x.reduce_ms_per_byte},
          {"point_to_point", std::move(points)}};
}

// The published accounting's terms, each with what comes nearest to it here: a new process is a node that starts, all
// meet while it settles and plans, the model is built in PREPARE, communicators begin with ACTIVATE.
json::object reconfiguration_of(const job_measurements& x, const std::vector<configuration>& table) {
  json::object build;
  std::set<std::uint32_t> depths;
  for (const auto& row : table)
    depths.insert(row.depth);
  for (const auto depth : depths)
    build[std::to_string(depth)] = x.changes.prepare_ms;
  const auto& f = x.changes;
  return {{"model_build_ms_by_depth", std::move(build)},
          {"rendezvous_ms", f.settle_ms + f.loss_ms + f.plan_ms},
          {"process_ms", x.node_start_ms},
          {"checkpoint_save_and_load_ms", x.checkpoint_ms},
          {"communicator_rebuild",
           {{"setup_ms", f.activate_ms},
            {"model", "per_rank"},
            {"per_rank_ms", {{"add", f.rank_ms}, {"remove", f.rank_ms}}}}}};
}

} // namespace

std::vector<configuration> predicted_configurations(const job_specification& job, const job_measurements& x,
                                                    std::uint32_t slots, const slot_memory& memory) {
  return predicted_configurations(job, step_knowledge{x.layers, x.platform, {}, memory, 1}, x.step_ms, slots);
}

json::object to_json(const job_specification& job, const job_measurements& x, const std::vector<configuration>& table) {
  std::uint64_t boundary = 0, state = 0, gradients = 0;
  for (std::size_t i = 0; i < x.layers.size(); ++i) {
    if (i + 1 < x.layers.size())
      boundary = std::max(boundary, x.layers[i].output_bytes);
    state += x.layers[i].state_bytes;
    gradients += x.layers[i].gradient_bytes;
  }
  std::uint32_t deepest = 1, shallowest = UINT32_MAX;
  for (const auto& row : table) {
    deepest = std::max(deepest, row.depth);
    shallowest = std::min(shallowest, row.depth);
  }
  const auto optimizer_tensors = job.optimizer.kind == "adamw" ? 2 : 1;
  return {{"name", job.name},
          {"title", job.name},
          {"source", "parcae profile: measured at 1×1; throughput of other configurations is predicted, each with its "
                     "interval of 95 %"},
          {"global_batch_samples", job.global_batch},
          {"micro_batch_samples", job.micro_batch},
          {"optimizer", job.optimizer.kind},
          {"optimizer_state_tensors_per_parameter", optimizer_tensors},
          {"bytes_per_value", sizeof(float)},
          {"has_embedding_layer", !job.model.of_images()},
          {"layers", layers_of(x)},
          {"stage_boundary_values", boundary / sizeof(float)},
          {"pipeline_depth", {{"min", std::min(shallowest, deepest)}, {"max", deepest}}},
          {"throughput", rows_of(job, table)},
          {"reconfiguration", reconfiguration_of(x, table)},
          {"changes", object_of(x.changes)},
          {"link", link_of(x.link)},
          {"step", {{"other_ms", x.platform.step_ms}, {"crowding", json::value_from(x.platform.crowding)}}},
          {"memory",
           {{"state_bytes", state},
            {"gradient_bytes", gradients},
            {"peak_tensor_bytes_1x1", x.memory.peak_bytes},
            {"estimated_bytes_1x1", x.memory.estimated_bytes}}},
          {"first_step_ms", x.first_step_ms}};
}

std::string to_string(const job_measurements& x, const std::vector<configuration>& table) {
  double forward = 0, backward = 0, optimizer = 0;
  for (const auto& layer : x.layers) {
    forward += layer.forward_ms;
    backward += layer.backward_ms;
    optimizer += layer.optimizer_ms;
  }
  auto out =
      fmt::format("{} layers: a micro-batch forward {:.2f} ms, backward {:.2f} ms; apply {:.2f} ms; a step at 1×1 "
                  "{:.1f} ms ({:.1f} ms of it no layer's)\n",
                  x.layers.size(), forward, backward, optimizer, x.step_ms, x.platform.step_ms);
  out += fmt::format("{} slots side by side: each takes {:.2f} of the time\n", x.platform.crowding.size(),
                     x.platform.crowding.back());
  out += fmt::format("link: {:.1f} µs, {:.2f} GB/s; an all-reduce computes {:.2f} ms per MB sent\n",
                     1000 * x.link.latency_ms, x.link.bytes_per_ms / 1e6, 1e6 * x.link.reduce_ms_per_byte);
  out +=
      fmt::format("memory at 1×1: {:.1f} MiB of tensors at most, {:.1f} MiB planned with\n",
                  static_cast<double>(x.memory.peak_bytes) / mib, static_cast<double>(x.memory.estimated_bytes) / mib);
  const auto& f = x.changes;
  out += fmt::format("changes: settle {:.1f} and {:.1f} for each lost, plan {:.1f}, prepare {:.1f}, transfer {:.1f}, "
                     "activate {:.1f} ms\n",
                     f.settle_ms, f.loss_ms, f.plan_ms, f.prepare_ms, f.transfer_ms, f.activate_ms);
  auto best = table;
  std::ranges::sort(best, [](const auto& a, const auto& b) { return a.samples_per_s > b.samples_per_s; });
  out += "samples/s predicted (95 %), the fastest:\n";
  for (std::size_t i = 0; i < std::min(best.size(), rows_shown); ++i)
    out += fmt::format("  {:>4}×{:<3} {:10.1f}  ({:.1f} to {:.1f})\n", best[i].width, best[i].depth,
                       best[i].samples_per_s, best[i].low_samples_per_s, best[i].high_samples_per_s);
  return out;
}

} // namespace parcae
