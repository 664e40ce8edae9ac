// Models whose last layer does what none may.

#include "gpu/plugin/parcae_plugin.hpp"

#include <ATen/ATen.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

namespace {

namespace plugin = parcae::plugin;
using tensors = std::vector<at::Tensor>;

constexpr std::int64_t sequence = 16, vocabulary = 256, width = 8;

struct embedding : plugin::layer {
  plugin::layer_facts facts() const override {
    return {.name = "embedding",
            .parameters = {{"wte.weight", {vocabulary, width}, plugin::tensor::start::normal, 0.02}},
            .output = {sequence, width}};
  }
  at::Tensor forward(const tensors& p, const at::Tensor& x, plugin::pass&) const override {
    return at::embedding(p[0], x);
  }
};

template <class Harm>
struct head : plugin::layer {
  plugin::layer_facts facts() const override {
    return {.name = "bad",
            .parameters = {{"head.weight", {vocabulary, width}, plugin::tensor::start::normal, 0.02}},
            .output = {sequence, vocabulary}};
  }
  at::Tensor forward(const tensors& p, const at::Tensor& x, plugin::pass& with) const override {
    return Harm()(p[0], x, with);
  }
};

struct random_numbers {
  at::Tensor operator()(const at::Tensor& w, const at::Tensor& x, plugin::pass& with) const {
    return at::dropout(at::linear(x, w), 0.5, with.training());
  }
};

struct writes {
  at::Tensor operator()(at::Tensor w, const at::Tensor& x, plugin::pass&) const { return at::linear(x, w.mul_(2)); }
};

struct shape {
  at::Tensor operator()(const at::Tensor&, const at::Tensor& x, plugin::pass&) const { return x * 2; }
};

struct throws {
  at::Tensor operator()(const at::Tensor&, const at::Tensor&, plugin::pass&) const {
    throw std::runtime_error("not today");
  }
};

struct crashes {
  at::Tensor operator()(const at::Tensor& w, const at::Tensor& x, plugin::pass&) const {
    std::raise(SIGFPE);
    return at::linear(x, w);
  }
};

struct sleeps {
  at::Tensor operator()(const at::Tensor& w, const at::Tensor& x, plugin::pass&) const {
    std::this_thread::sleep_for(std::chrono::hours(10));
    return at::linear(x, w);
  }
};

template <class Harm>
plugin::model make(const plugin::arguments&) {
  plugin::model result;
  result.input = plugin::tokens{sequence, vocabulary};
  result.layers.push_back(std::make_unique<embedding>());
  result.layers.push_back(std::make_unique<head<Harm>>());
  return result;
}

} // namespace

PARCAE_PLUGIN({"random", make<random_numbers>}, {"writes", make<writes>}, {"shape", make<shape>},
              {"throws", make<throws>}, {"crashes", make<crashes>}, {"sleeps", make<sleeps>})
