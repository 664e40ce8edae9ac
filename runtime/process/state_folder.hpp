#pragma once

#include <filesystem>

namespace parcae {

/// Where a keeper puts checkpoints unless told otherwise: $XDG_STATE_HOME/parcae, else ~/.local/state/parcae, else
/// parcae-state in the working folder; absolute.
std::filesystem::path default_state_folder();

} // namespace parcae
