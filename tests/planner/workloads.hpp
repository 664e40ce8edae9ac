#pragma once

// Small made-up workloads and cost models for tests that compare with brute force.

#include "planner/cost/cost_model.hpp"
#include "planner/cost/profile.hpp"
#include "planner/cost/step_model.hpp"

#include <map>
#include <random>

namespace parcae::made_up {

/// Of steps that can be counted by hand.
inline job_specification job_of(std::uint32_t micro_batches, std::uint32_t virtual_replicas) {
  job_specification job;
  job.micro_batch = 2;
  job.global_batch = 2 * micro_batches;
  job.virtual_replicas = virtual_replicas;
  return job;
}

inline std::vector<layer_cost> equal_layers(std::size_t n) {
  return std::vector<layer_cost>(n, {1, 2, 0.5, 4'000'000, 1'000'000, 12'000'000, 5'000'000});
}

inline const platform_cost free_link{0, 1e18};

/// `layers` layers of different sizes, every (D, P) with D·P ≤ slots and P ≤ layers allowed and in the table.
inline profile workload(std::uint32_t layers, std::uint32_t slots, std::uint64_t seed, bool equal_layers = false) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  profile x;
  x.name = "made-up";
  x.global_batch = 64;
  x.micro_batch = 1;
  for (std::uint32_t i = 0; i < layers; ++i)
    x.layers.push_back({equal_layers ? 3e7 : 1e6 + 9e7 * unit(random), 1, 2, 0.1, 1});
  x.max_depth = layers;
  for (std::uint32_t depth = 1; depth <= layers; ++depth) {
    x.model_build_ms[depth] = 1000 * unit(random);
    for (std::uint32_t width = 1; width * depth <= slots; ++width)
      x.samples_per_s[{width, depth}] = (0.5 + unit(random)) * width * depth;
  }
  x.rendezvous_ms = 6600;
  x.process_ms = 200;
  x.checkpoint_ms = 14'000;
  x.rebuild.kind = rebuild_costs::law::per_rank;
  x.rebuild.add_ms = 50;
  x.rebuild.remove_ms = 30;
  return x;
}

inline network_profile network() {
  return {{{1024, 0.14}, {1e6, 1.4}, {1e9, 1200}}};
}

/// Every move costs a fixed random time, most of it known without the number held.
class random_costs : public cost_model {
public:
  random_costs(std::uint64_t seed, double max_ms) : random_(seed), max_ms_(max_ms) {}

  double move_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) override {
    return from == to && lost == 0 ? 0
                                   : move_bounds(from, to, lost).least_ms +
                                         0.2 * draw({from.width, from.depth, to.width, to.depth, held, lost});
  }
  cost_bounds move_bounds(const shape& from, const shape& to, std::uint32_t lost) override {
    if (from == to && lost == 0)
      return {0, 0};
    const double least_ms = 0.8 * draw({from.width, from.depth, to.width, to.depth, lost});
    return {least_ms, least_ms + 0.2 * max_ms_};
  }
  double start_ms(const shape& to, bool beginning) override { return draw({to.width, to.depth, beginning}); }
  double redirect_ms(const shape& to) override { return draw({to.width, to.depth}); }
  std::uint32_t devices() const override { return 1; }

private:
  double draw(const std::vector<std::uint32_t>& key) {
    const auto [found, fresh] = drawn_.try_emplace(key, 0);
    if (fresh)
      found->second = max_ms_ * std::uniform_real_distribution<double>(0, 1)(random_);
    return found->second;
  }

  std::mt19937_64 random_;
  double max_ms_;
  std::map<std::vector<std::uint32_t>, double> drawn_;
};

} // namespace parcae::made_up
