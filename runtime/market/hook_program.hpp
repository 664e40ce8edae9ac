#pragma once

// A hook that is a program: the request on its standard input, the answer on its standard output.

#include <tl/expected.hpp>

#include <chrono>
#include <cstddef>
#include <stop_token>
#include <string>

namespace parcae {

/// What it wrote, if it ended with status 0 within the limit and wrote no more than `most` bytes; else one line that
/// says why not, with the last of its standard error. Whatever comes of it, at the end it and its process group are
/// dead: what is to outlive it has a session of its own. Blocks; a stop ends it within milliseconds.
tl::expected<std::string, std::string> ask_program(const std::string& path, const std::string& request,
                                                   std::chrono::milliseconds limit, std::size_t most,
                                                   const std::stop_token& stop);

} // namespace parcae
