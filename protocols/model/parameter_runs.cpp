#include "protocols/model/parameter_runs.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace parcae {

namespace {

constexpr double largest_factor = 1'000'000;

struct rate_factor {
  std::string_view pattern;
  double factor = 0;
  bool is_good = false; ///< PATTERN=FACTOR
};

std::string_view trimmed(std::string_view x) {
  while (!x.empty() && x.front() == ' ')
    x.remove_prefix(1);
  while (!x.empty() && x.back() == ' ')
    x.remove_suffix(1);
  return x;
}

/// "a*=0.1, b=2".
std::vector<rate_factor> rate_factors(std::string_view text) {
  std::vector<rate_factor> result;
  while (!trimmed(text).empty()) {
    const auto entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const auto equals = std::min(entry.rfind('='), entry.size());
    rate_factor x{trimmed(entry.substr(0, equals))};
    const auto number = trimmed(entry.substr(std::min(entry.size(), equals + 1)));
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), x.factor);
    x.is_good = !x.pattern.empty() && error == std::errc() && end == number.data() + number.size() &&
                std::isfinite(x.factor) && x.factor >= 0 && x.factor <= largest_factor;
    result.push_back(x);
  }
  return result;
}

parameter_run run_of(const tensor_description& tensor, const std::vector<rate_factor>& factors,
                     const optimizer_specification& x) {
  const auto found = std::ranges::find_if(factors, [&](const auto& f) { return fits(tensor.name, f.pattern); });
  const bool is_norm_or_bias = tensor.shape.size() <= 1 || tensor.name.ends_with(".bias");
  return {tensor.values(), found == factors.end() ? 1 : found->factor, x.decay_norms_and_biases || !is_norm_or_bias};
}

} // namespace

bool fits(std::string_view text, std::string_view pattern) {
  // After the last * so far, all but what has to follow it may be any characters: only that one is tried again.
  std::size_t t = 0, p = 0, star = pattern.npos, after = 0;
  while (t < text.size())
    if (p < pattern.size() && pattern[p] == '*')
      star = p++, after = t;
    else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]))
      ++p, ++t;
    else if (star != pattern.npos)
      p = star + 1, t = ++after;
    else
      return false;
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

std::vector<parameter_run> parameter_runs(const model_description& model, std::uint32_t layer,
                                          const optimizer_specification& x) {
  const auto factors = rate_factors(x.rate_factors);
  std::vector<parameter_run> result;
  const auto& tensors = model.layers.at(layer).tensors;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    const auto& tie = model.tied;
    const bool second = tie && tie->second_layer == layer && tie->second_tensor == i;
    const auto run =
        run_of(second ? model.layers[tie->first_layer].tensors[tie->first_tensor] : tensors[i], factors, x);
    if (!result.empty() && result.back().rate_factor == run.rate_factor && result.back().decays == run.decays)
      result.back().values += run.values;
    else
      result.push_back(run);
  }
  return result;
}

std::string rate_factors_problem(const model_description& model, const optimizer_specification& x) {
  for (const auto& f : rate_factors(x.rate_factors)) {
    const auto pattern = "\"" + std::string(f.pattern.substr(0, 60)) + "\"";
    if (!f.is_good)
      return "optimizer.rate_factors has " + pattern + " without a factor from 0 to 1000000; it is PATTERN=FACTOR, " +
             "several with commas between them";
    const bool known = std::ranges::any_of(model.layers, [&](const auto& layer) {
      return std::ranges::any_of(layer.tensors, [&](const auto& t) { return fits(t.name, f.pattern); });
    });
    if (!known)
      return "optimizer.rate_factors has " + pattern + ", which no tensor's name fits, such as " +
             model.layers.front().tensors.front().name;
  }
  return {};
}

} // namespace parcae
