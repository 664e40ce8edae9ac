#pragma once

// What LibTorch does not look at before it computes: numbers of a graph that would end the process by a signal. For the
// sources of this room only.

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Why an operator must not be called with these arguments, all of its schema's; empty: it may.
using operand_check = std::string (*)(const std::vector<c10::IValue>& arguments);

/// By the operator's name in its schema. nullptr: LibTorch looks at all that can go wrong.
operand_check operand_check_of(std::string_view name);

} // namespace parcae
