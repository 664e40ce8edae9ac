#include "gpu/layers/operand_check.hpp"

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <limits>
#include <map>

namespace parcae {

namespace {

using arguments = std::vector<c10::IValue>;

/// As many as a sample may have (protocols/model/exported_model.cpp).
constexpr double max_numbers = 1 << 28;

double number(const c10::IValue& x) {
  return x.isDouble() ? x.toDouble() : x.isBool() ? static_cast<double>(x.toBool()) : static_cast<double>(x.toInt());
}

/// By the type that is asked for, LibTorch makes a step of 0.1 one of 0, and divides by it.
std::string problem_of_range(double start, double end, const c10::IValue& step, const c10::IValue& type) {
  const auto by = number(step);
  const bool whole = !type.isNone() && c10::isIntegralType(static_cast<c10::ScalarType>(type.toInt()), true);
  if (whole && std::abs(by) < 1)
    return "its step " + std::to_string(by) + " is 0 as a whole number";
  if (const auto count = (end - start) / by; count > max_numbers)
    return "makes more than 268435456 numbers";
  return {};
}

std::string check_range_to(const arguments& x) {
  return problem_of_range(0, number(x[0]), 1, x[1]);
}

std::string check_range(const arguments& x) {
  return problem_of_range(number(x[0]), number(x[1]), 1, x[2]);
}

std::string check_range_by(const arguments& x) {
  return problem_of_range(number(x[0]), number(x[1]), x[2], x[3]);
}

/// Groups of queries share keys and values: LibTorch divides by the number of these.
std::string check_attention(const arguments& x) {
  const auto& query = x[0].toTensor();
  for (std::size_t i : {1, 2}) {
    const auto& shared = x[i].toTensor();
    if (query.dim() < 3 || shared.dim() < 3 || !x[7].toBool())
      continue;
    if (shared.size(-3) == 0 || query.size(-3) % shared.size(-3) != 0)
      return std::to_string(query.size(-3)) + " heads of queries cannot share " + std::to_string(shared.size(-3)) +
             " of keys or values";
  }
  return {};
}

/// The least whole number by -1, which processors refuse. LibTorch looks at it in all other divisions.
std::string check_quotient(const arguments& x) {
  if (x[2].isNone() || x[2].toStringRef() != "trunc")
    return {};
  const auto &above = x[0].toTensor(), &below = x[1].toTensor();
  const auto type = at::result_type(above, below);
  if (!above.is_cpu() || !below.is_cpu() || (type != at::kLong && type != at::kInt)) // GPUs divide on
    return {};
  const auto least =
      type == at::kLong ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int32_t>::min();
  if (at::logical_and(above.to(type).eq(least), below.to(type).eq(-1)).any().item<bool>())
    return "divides " + std::to_string(least) + " by -1, which is no whole number of its type";
  return {};
}

} // namespace

operand_check operand_check_of(std::string_view name) {
  static const std::map<std::string_view, operand_check> all{{"arange", check_range_to},
                                                             {"arange.start", check_range},
                                                             {"arange.start_step", check_range_by},
                                                             {"div.Tensor_mode", check_quotient},
                                                             {"scaled_dot_product_attention", check_attention}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

} // namespace parcae
