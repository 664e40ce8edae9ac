#pragma once

// Libraries with layers of users (parcae_plugin.hpp): opened once, when a node starts, from its own command line, and
// open until it ends. A job says a library's SHA-256, never where it is: submitting a job must not choose what code
// the nodes' processes load. Torch-free. All functions throw exported_model_error: one line that names the file.

#include <filesystem>
#include <map>
#include <string>

namespace parcae {

/// Opens a library and returns its SHA-256, hexadecimal. What is opened is a copy in memory of what was hashed: a file
/// that is replaced later changes nothing. Refuses what was built against another LibTorch or another interface.
std::string open_plugin(const std::filesystem::path& file);

/// Of an opened library: what a job's model.path has to name, as JSON.
std::string describe_plugin_model(const std::string& digest, const std::string& model,
                                  const std::map<std::string, std::string>& arguments);

} // namespace parcae
