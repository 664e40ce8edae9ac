#pragma once

// How a model's tensors lie in the files of the library that it comes from (Hugging Face's transformers, torchvision):
// one table for both directions, version 0 from such files and exports as such files. Torch-free and pure.

#include "protocols/model/model_description.hpp"

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace parcae {

/// Whether a tensor of a model is stored transposed there: GPT-2's Conv1D has [in, out], linear layers here [out, in].
bool is_transposed(const model_specification& x, std::string_view name);

/// The shape in which a tensor is stored there.
std::vector<std::int64_t> published_shape(const model_specification& x, const tensor_description& tensor);

/// What older files call otherwise: LayerNorm.gamma and .beta are .weight and .bias.
std::string present_name(std::string name);

/// A second name of one parameter: that of the first; else empty. For ties that a description does not know, as both
/// uses are in one layer.
std::string first_name(std::string_view name);

/// Whether files have tensors of this name that are no parameters, or of heads that such a model is trained without:
/// masks, positions, counters, BERT's pooler.
bool is_left_out(std::string_view name);

/// The config.json with which transformers builds the same model, that of an exported one as it was then; empty: it has
/// no such model. Throws exported_model_error.
boost::json::object published_config(const model_specification& x);

/// What of a config.json beside weights contradicts a model, among all that shapes do not tell, such as the number of
/// heads: one line; or empty.
std::string config_problem(const model_specification& x, const boost::json::object& config);

} // namespace parcae
