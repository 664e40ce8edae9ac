#pragma once

// A folder for data, and what loading it says.

#include "gpu/data/dataset.hpp"
#include "tests/support/files.hpp"
#include "tests/support/thrown_by.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// Little-endian, one after the other.
template <class Number>
std::string bytes_of(const std::vector<Number>& all) {
  std::string result(all.size() * sizeof(Number), '\0');
  std::memcpy(result.data(), all.data(), result.size());
  return result;
}

/// As numpy.save writes it, version 1.
inline std::string npy_of(const std::string& type, const std::string& shape, const std::string& values,
                          const std::string& order = "False") {
  auto header = "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  header.resize((header.size() + 10 + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size() % 256) +
         static_cast<char>(header.size() / 256) + header + values;
}

/// A folder of its own for each test, removed at its end.
class data_test : public testing::Test {
protected:
  void write(const std::string& name, std::string_view text) { write_file(folder / name, text); }

  /// Loads what is in the folder under a name; "" is all of it.
  std::shared_ptr<const dataset> load(data_specification data, const model_specification& model,
                                      const std::string& name = "") {
    data.path = (name.empty() ? folder : folder / name).string();
    return load_dataset(data, model);
  }

  std::string error_of(const data_specification& data, const model_specification& model, const std::string& name = "") {
    return thrown_by<data_error>([&] { load(data, model, name); });
  }

  own_folder folder;
};

} // namespace parcae
