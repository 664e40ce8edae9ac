#include "gpu/checkpoint/exported_weights.hpp"

#include "protocols/base/digest.hpp"

#include <map>
#include <stdexcept>

namespace parcae {

namespace {

safetensors_file opened(const model_specification& x) {
  try {
    return safetensors_file(weights_of(x));
  } catch (const std::runtime_error& e) {
    throw exported_model_error(e.what());
  }
}

} // namespace

safetensors_entry entry_of(const stored_tensor& x) {
  static const std::map<std::string, std::string> types{{"float32", "F32"}, {"float64", "F64"}, {"int64", "I64"},
                                                        {"int32", "I32"},   {"uint8", "U8"},    {"bool", "BOOL"}};
  const auto found = types.find(x.type);
  return {x.name, x.shape, found == types.end() ? x.type : found->second};
}

exported_weights::exported_weights(const model_specification& x) : file_(opened(x)), path_(weights_of(x).string()) {}

void exported_weights::require(const stored_tensor& tensor) const {
  try {
    file_.require(entry_of(tensor));
  } catch (const std::runtime_error& e) {
    throw exported_model_error(e.what());
  }
}

std::uint64_t exported_weights::size_of(const stored_tensor& tensor) const {
  require(tensor);
  return file_.size_of(tensor.name);
}

void exported_weights::read(const stored_tensor& tensor, std::span<std::byte> to) {
  require(tensor);
  try {
    if (file_.size_of(tensor.name) != to.size())
      throw std::logic_error(path_ + ": tensor " + tensor.name + " into another number of bytes");
    file_.read(entry_of(tensor), to.data());
  } catch (const std::runtime_error& e) {
    throw exported_model_error(e.what());
  }
  sha256 digest;
  digest.add(to);
  if (digest.hexadecimal() != tensor.digest)
    throw exported_model_error(path_ + " has other values of " + tensor.name + " than when the job was submitted; " +
                               "export the model again, or copy its whole folder to this machine");
}

void check_stored_weights(const model_specification& x) {
  const auto model = exported_model_of(x);
  const exported_weights weights(x);
  for (const auto* all : {&model->initial, &model->constants})
    for (const auto& tensor : *all)
      weights.require(tensor);
}

} // namespace parcae
