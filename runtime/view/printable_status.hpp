#pragma once

#include "protocols/client/client.hpp"

namespace parcae {

/// A status for people's eyes: each text in it, which nodes, job files and failures have written, is one printable line
/// of bounded length.
status_reply printable(status_reply x);

} // namespace parcae
