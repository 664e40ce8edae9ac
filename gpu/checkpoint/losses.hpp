#pragma once

// What came of each step, beside the checkpoints of a run: a folder "losses" with a file or object for each block.

#include "protocols/store/store.hpp"
#include "protocols/values/loss_record.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace parcae {

struct stored_losses {
  loss_record known;
  std::uint32_t samples = 0; ///< in each step, as the last block says; 0: not known
  std::string problem;       ///< what could not be read, the last of it: one line; empty: all could be
};

/// In the place of what is there of the block, which begins where one does; of steps that it does not know what is
/// there stays. `run`: where a job's checkpoints are. Throws store_error, or std::system_error of a folder.
void put_losses(object_store& run, loss_block x);

/// Of the steps before `steps`; the bytes may be anybody's. Throws store_error if the folder cannot be listed.
stored_losses read_losses(const object_store& run, std::uint64_t steps = UINT64_MAX);

/// Where the checkpoint's run is: the place above it. Null: there is none.
std::shared_ptr<object_store> run_above(const std::string& checkpoint, const store_options& options = {});

/// With the checkpoints. Throws store_error.
void remove_losses(object_store& run);

} // namespace parcae
