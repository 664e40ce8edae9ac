#pragma once

#include "actors/manager/journal_store.hpp"

#include <filesystem>
#include <memory>

namespace parcae {

/// The journal in `folder`, which is made if it is not there: an SQLite database, for one process at a time. Each write
/// is one transaction that is on disk when it returns (write-ahead log, synchronous FULL). Its files are for their
/// owner alone, whatever the folder is. Throws std::runtime_error, also if another process has it.
std::unique_ptr<journal_store> open_journal(const std::filesystem::path& folder);

} // namespace parcae
