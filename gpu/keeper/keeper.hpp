#pragma once

#include "gpu/executor/executor.hpp"

#include <memory>

namespace parcae {

class data_port;

/// An executor that holds snapshots in host memory, sends shards and writes checkpoints, but does not train. `port`
/// must outlive it.
std::unique_ptr<executor> make_keeper(executor_options options, data_port& port);

} // namespace parcae
