#pragma once

// The models of opened libraries, for sources that have LibTorch's headers.

#include "gpu/plugin/parcae_plugin.hpp"
#include "protocols/model/exported_model.hpp"

#include <string>

namespace parcae {

/// Makes it by the library that the job says, and compares what it says of itself with what the job says. Throws
/// exported_model_error, also if no such library was opened.
plugin::model make_plugin_model(const model_specification& x);

} // namespace parcae
