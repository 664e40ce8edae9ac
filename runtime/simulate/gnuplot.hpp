#pragma once

// gnuplot, as a process that draws to its standard output.

#include <string>
#include <vector>

namespace parcae {

/// What the script draws, into a file. Names of files and the like come as ARG1, ARG2, …: gnuplot expands what is in a
/// script, and they are not for it to carry out. Throws std::runtime_error if gnuplot is missing or fails, or if the
/// file cannot be written.
void draw(const std::string& path, const std::string& script, const std::vector<std::string>& words);

} // namespace parcae
