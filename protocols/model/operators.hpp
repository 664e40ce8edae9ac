#pragma once

// The operators of LibTorch that exported graphs may have, as their schemas say. Torch-free.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Of an argument, as a schema has it. Lists end in s.
enum class argument_kind : std::uint8_t {
  tensor,
  tensors,
  whole,  ///< int, SymInt
  wholes, ///< int[], SymInt[2]
  real,   ///< float
  number, ///< Scalar: whole or real, which makes a difference to the result's type
  flag,   ///< bool
  text,   ///< str
  element_type,
  memory_format,
  nothing, ///< Layout and what else only its default is allowed of
  device,
};

struct operator_argument {
  std::string name;
  argument_kind kind = argument_kind::tensor;
  bool optional = false;
  bool aliased = false; ///< the result may share its memory
  bool written = false; ///< in place
};

struct operator_schema {
  std::string name; ///< "add.Tensor", "linear"
  std::string text; ///< the schema, as LibTorch prints it
  std::vector<operator_argument> arguments;
  bool makes_list = false; ///< of tensors; or several tensors
};

/// nullptr: it is not on the list.
const operator_schema* find_operator(std::string_view name);

/// All of them.
std::span<const operator_schema> operator_list();

} // namespace parcae
