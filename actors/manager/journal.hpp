#pragma once

// JOURNAL: the manager's memory on disk. Created by the manager's main program, detached: its store blocks.

#include "actors/manager/interfaces.hpp"
#include "actors/manager/journal_store.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <chrono>
#include <memory>

namespace parcae {

constexpr std::chrono::minutes journal_limit{10}; ///< for a write: a disk that takes longer is gone

journal_actor::behavior_type journal(journal_actor::pointer self, std::shared_ptr<journal_store> store);

} // namespace parcae
