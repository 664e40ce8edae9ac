#pragma once

// Which build this process is, and what one of another protocol is told.

#include <string>
#include <vector>

namespace parcae {

/// Said by a program before it has threads; else both are unknown. `revision`: of the sources.
void name_this_build(std::string version, std::string revision);

/// For people: "0.2.0 (build 0cdd3a36dbc1, protocol 20, LibTorch 2.11.0)".
std::string this_build();

/// What a manager shows in CAF's handshake, whose application identifiers they are: that of the protocol, which both
/// sides must have in common, and what build it is, for who has another.
std::vector<std::string> application_identifiers();

/// What is to be done about a manager that shows this, as it is of another protocol, in one line; else nothing.
std::string problem_of_manager(const std::vector<std::string>& shown);

} // namespace parcae
