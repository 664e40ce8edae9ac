// A model whose middle layer takes a known time: $PARCAE_PASS_MS milliseconds a pass, slept, so that kinds of instances
// can have unlike speed on one machine, whatever cores it has. Without it there is no wait; bits are the same.
//
// Loaded before a node (LD_PRELOAD), too, what is slept counts as processor time of the thread, and not as sleep: that
// is what the manager learns of layers by.

#include "gpu/plugin/parcae_plugin.hpp"

#include <ATen/ATen.h>

#include <dlfcn.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdlib>

namespace {

namespace plugin = parcae::plugin;
using tensors = std::vector<at::Tensor>;

constexpr std::int64_t sequence = 16, vocabulary = 256, width = 8;
constexpr std::int64_t ns_per_s = 1'000'000'000;

thread_local std::int64_t slept_ns = 0;
thread_local std::int64_t sleeps = 0;

timespec time_of(std::int64_t ns) {
  return {ns / ns_per_s, ns % ns_per_s};
}

} // namespace

extern "C" {

/// Of the library that was loaded first, as its clocks are those in use: a node loads a copy of its plug-in.
__attribute__((visibility("default"))) void parcae_note_sleep(std::int64_t ns) {
  slept_ns += ns;
  ++sleeps;
}
}

namespace {

void wait_for_pass() {
  static const auto* const text = std::getenv("PARCAE_PASS_MS");
  static const auto ns = text ? static_cast<std::int64_t>(1e6 * std::atof(text)) : 0;
  if (ns == 0)
    return;
  auto left = time_of(ns);
  while (nanosleep(&left, &left) != 0) {
  }
  parcae_note_sleep(ns);
}

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

struct slow : plugin::layer {
  plugin::layer_facts facts() const override {
    return {.name = "slow",
            .parameters = {{"slow.weight", {width, width}, plugin::tensor::start::normal, 0.2}},
            .output = {sequence, width}};
  }
  at::Tensor forward(const tensors& p, const at::Tensor& x, plugin::pass& with) const override {
    wait_for_pass();
    return x + with.dropout(at::gelu(at::linear(x, p[0])), 0.1);
  }
};

struct head : plugin::layer {
  plugin::layer_facts facts() const override {
    return {.name = "head",
            .parameters = {{"head.weight", {vocabulary, width}, plugin::tensor::start::normal, 0.02}},
            .output = {sequence, vocabulary}};
  }
  at::Tensor forward(const tensors& p, const at::Tensor& x, plugin::pass&) const override {
    return at::linear(x, p[0]);
  }
};

plugin::model make(const plugin::arguments&) {
  plugin::model result;
  result.input = plugin::tokens{sequence, vocabulary};
  result.layers.push_back(std::make_unique<embedding>());
  result.layers.push_back(std::make_unique<slow>());
  result.layers.push_back(std::make_unique<head>());
  return result;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

} // namespace

PARCAE_PLUGIN({"slow", make})

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec* to) noexcept {
  static auto* const real = next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, to);
  if (result == 0 && clock == CLOCK_THREAD_CPUTIME_ID && slept_ns > 0)
    *to = time_of(to->tv_sec * ns_per_s + to->tv_nsec + slept_ns);
  return result;
}

__attribute__((visibility("default"))) int getrusage(__rusage_who_t who, rusage* to) noexcept {
  static auto* const real = next<int(__rusage_who_t, rusage*)>("getrusage");
  const int result = real(who, to);
  if (result == 0 && who == RUSAGE_THREAD)
    to->ru_nvcsw -= sleeps;
  return result;
}
}
