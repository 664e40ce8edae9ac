#pragma once

#include <stdexcept>
#include <string>

namespace parcae {

/// What the Error says that `f` throws; empty: it throws none.
template <class Error = std::runtime_error, class Function>
std::string thrown_by(Function f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

} // namespace parcae
