#pragma once

// JOURNAL: the manager's memory on disk. Created by the manager's main program, detached: its store blocks.

#include "actors/manager/interfaces.hpp"
#include "actors/manager/journal_store.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <memory>

namespace parcae {

journal_actor::behavior_type journal(journal_actor::pointer self, std::shared_ptr<journal_store> store);

} // namespace parcae
