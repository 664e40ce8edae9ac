#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>

// The table that the conductor runs, and its conditions.

namespace parcae {

using enum phase;
using enum happening;

// clang-format off
const std::vector<conductor::machine::row> conductor::machine::rows = {
    {recovering, all_answered, "g had ended", &machine::had_ended, "", &machine::decide_as_before, deciding},
    {recovering, all_answered, "all ranks of g are here", &machine::all_are_here, "", &machine::go_on, running},
    {recovering, all_answered, "", nullptr, "", &machine::abort_unheard, aborting},
    {recovering, late, "g had ended", &machine::had_ended, "", &machine::decide_as_before, deciding},
    {recovering, late, "", nullptr, "", &machine::abort_unheard, aborting},
    {recovering, place_lost, "a rank of each stage has answered", &machine::each_stage_answered, "", &machine::abort, aborting},
    {recovering, broken, "a rank of each stage has answered", &machine::each_stage_answered, "counts a restart", &machine::abort_broken, aborting},
    {recovering, lost, "", nullptr, "waits for one answer less", &machine::note_lost, {}},

    {waiting, due, "", nullptr, "", nullptr, planning},
    {waiting, all_answered, "", nullptr, "", nullptr, planning}, // by keepers that read a checkpoint
    {waiting, kept, "the keepers hold the final version", &machine::final_is_kept, "", nullptr, planning},
    {waiting, lost, "", nullptr, "plans soon, or saves what is under notice", &machine::look_for_more, {}},
    {waiting, closing, "", nullptr, "keepers write what they hold, then the job ends", &machine::close_waiting, {}},

    {planning, kept, "the keepers hold the final version", &machine::final_is_kept, "", nullptr, finishing},
    {planning, nobody, "", nullptr, "saves what is under notice", &machine::wait_for_anybody, waiting},
    {planning, chosen, "nothing fits", &machine::nothing_fits, "asks again after the interval", &machine::wait_for_fit, waiting},
    {planning, chosen, "it takes more slots than are left", &machine::too_few_are_left, "", nullptr, planning},
    {planning, chosen, "who holds newer state may come back", &machine::newer_may_return, "", &machine::wait_for_newer, waiting},
    {planning, chosen, "steps would be given up, and the keepers were not asked", &machine::keepers_may_hold_newer, "asks them what they hold", &machine::ask_for_newer, {}},
    {planning, chosen, "the checkpoint is newer, and keepers have to read it", &machine::checkpoint_can_be_read, "RESTORE to keepers", &machine::read_checkpoint, waiting},
    {planning, chosen, "the checkpoint is newer, and is lost", &machine::checkpoint_is_lost, "names the layers", &machine::fail_for_layers, ended},
    {planning, chosen, "the checkpoint is newer, and a part is missing", &machine::checkpoint_is_newer, "names the layers", &machine::wait_for_layers, waiting},
    {planning, chosen, "", nullptr, "cuts the chain if it must; plans places and moves", &machine::begin_from_held, preparing},
    {planning, all_answered, "", nullptr, "asks the planner again", &machine::ask_again, {}}, // by keepers
    {planning, late, "", nullptr, "asks the planner again", &machine::ask_again, {}},
    {planning, closing, "", nullptr, "", nullptr, waiting},

    {preparing, all_answered, "", nullptr, "", &machine::note_prepared, transferring},
    {transferring, all_answered, "", nullptr, "", &machine::note_ready, activating},
    {{preparing, transferring}, part_lost, "", nullptr, "", &machine::clear, clearing},
    {{preparing, transferring}, next_broken, "", nullptr, "counts a restart", &machine::clear_broken, clearing},
    {{preparing, transferring}, notice, "to a rank of g+1, and ends before the limit", &machine::is_new_rank, "", &machine::clear, clearing},
    {{preparing, transferring}, closing, "", nullptr, "", &machine::clear_for_good, clearing},
    {activating, all_answered, "all ranks have stopped, with no step left", &machine::all_are_stopped, "learns what the change took", &machine::note_active, finishing},
    {activating, all_answered, "", nullptr, "learns what the change took", &machine::note_active, running},

    {running, due, "", nullptr, "asks the planner", &machine::ask_in_time, {}},
    {running, chosen, "it fits, and is another or replaces who leaves", &machine::change_pays, "plans places and moves", &machine::begin_beside, readying},
    {{running, readying}, all_stopped, "at the final version", &machine::is_final, "ends g in the chain", &machine::end_with_final, finishing},
    {running, all_stopped, "", nullptr, "ends g in the chain", &machine::end_for_planning, planning}, // by the manager before
    {{running, readying, stopping, activating}, place_lost, "", nullptr, "ABORT of g+1", &machine::abort, aborting},
    {{running, readying, stopping, activating}, broken, "", nullptr, "counts a restart; ABORT of g+1", &machine::abort_broken, aborting},
    {running, late, "", nullptr, "doubles the limit of progress", &machine::abort_stuck, aborting},
    {running, last_moment, "", nullptr, "its state goes to the keepers", &machine::secure, stopping},
    {running, closing, "there is no keeper", &machine::no_keeper, "says what is lost", &machine::close_without_keeper, ended},
    {running, closing, "", nullptr, "its state goes to the keepers", &machine::stop_for_good, stopping},

    {readying, all_answered, "", nullptr, "", &machine::note_prepared, stopping},
    {readying, part_lost, "", nullptr, "ABORT of g+1; plans soon", &machine::give_up, running},
    {readying, refused, "", nullptr, "ABORT of g+1; plans soon", &machine::give_up, running},
    {readying, late, "", nullptr, "ABORT of g+1; who is late gets no new place for now", &machine::give_up_late, running},
    {readying, notice, "to one with a place in g or g+1, and ends before the limit", &machine::is_of_change, "ABORT of g+1; who is late gets no new place for now", &machine::give_up_for_notice, running},
    {readying, last_moment, "", nullptr, "ABORT of g+1; plans soon", &machine::give_up, running},
    {readying, closing, "", nullptr, "ABORT of g+1", &machine::give_up_for_good, running},

    {stopping, all_answered, "at the final version", &machine::is_final, "ends g in the chain", &machine::end_with_final, finishing},
    {stopping, all_answered, "g+1 is prepared", &machine::next_is_good, "ends g in the chain", &machine::end_generation, transferring},
    {stopping, all_answered, "", nullptr, "ends g in the chain; ABORT of g+1", &machine::end_for_planning, planning},
    {stopping, part_lost, "", nullptr, "g+1 is not used", &machine::spoil, {}},
    {stopping, notice, "to a participant of g+1, and ends before the limit", &machine::is_participant, "g+1 is not used", &machine::spoil, {}},
    {stopping, late, "the notice to those who alone hold a stage is over", &machine::outlasts_notice, "ABORT of g+1", &machine::abort_at_notice, aborting},
    {stopping, late, "", nullptr, "doubles the limit of progress; ABORT of g+1", &machine::abort_unstopped, aborting},

    {clearing, all_answered, "", nullptr, "", nullptr, planning},
    {aborting, all_answered, "a stage has nobody left, and the keepers were not asked", &machine::keepers_are_to_be_asked, "asks them what they hold", &machine::ask_keepers, {}},
    {aborting, all_answered, "a stage has nobody left, and who has it may be dialling", &machine::holder_may_be_dialling, "waits for who dials", &machine::await_return, {}},
    {aborting, all_answered, "", nullptr, "decides the open step", &machine::decide_step, deciding},
    {aborting, late, "nobody is awaited but who might have been dialling", &machine::nobody_is_awaited, "decides the open step", &machine::decide_step, deciding},
    {deciding, all_answered, "", nullptr, "", &machine::settle, planning},
    {{planning, clearing, aborting, deciding}, lost, "", nullptr, "waits for one answer less", &machine::note_lost, {}},
    {{aborting, deciding}, late, "the only holder of a stage may still answer", &machine::only_holder_is_awaited, "waits as long as a step may take", &machine::wait_longer, {}},
    {{waiting, preparing, transferring, activating, clearing, aborting, deciding}, late, "", nullptr, "takes who did not answer for lost", &machine::take_for_lost, {}},

    {finishing, place_lost, "the keepers hold the final version", &machine::final_is_kept, "no slot of g is needed", &machine::leave_grid, {}},
    {finishing, lost, "nobody holds the final version whole", &machine::final_is_gone, "", &machine::plan_because, planning},
    {finishing, kept, "nobody holds the final version whole", &machine::final_is_gone, "", &machine::plan_because, planning},
    {finishing, kept, "", nullptr, "asks for digests, has the final version written, ends", &machine::check_done, {}},
    {finishing, notice, "to a rank, with no keeper, and others can take over", &machine::others_take_over, "", &machine::plan_because, planning},
    {finishing, late, "", nullptr, "asks again", &machine::check_done_again, {}},

    {{recovering, waiting, planning, preparing, running, readying, stopping, clearing, aborting, deciding, transferring, activating, finishing}, over, "", nullptr, "ABORT of g, FORGET", &machine::say_farewell, ended},
};
// clang-format on

std::vector<transition> conductor::transitions() {
  std::vector<transition> result;
  for (const auto& x : machine::rows)
    result.push_back({x.from, x.on, x.condition, x.does, x.to});
  return result;
}

bool conductor::machine::happens(happening on, const cause& x) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    const auto from = stand_.now;
    if (row.on != on || !row.from.contains(from) || (row.holds && !(this->*row.holds)(x)))
      continue;
    if (observe_)
      observe_(i, from);
    if (row.act)
      (this->*row.act)(x);
    if (row.to)
      enter(*row.to);
    return true;
  }
  return false;
}

bool conductor::machine::final_is_gone(const cause&) const {
  const auto& current = generations_.current;
  const bool ranks_hold_it = current && std::ranges::all_of(current->rank_of, [&](const auto& x) {
                               const auto* slot = roster_.find(x.first);
                               return slot && !slot->excluded;
                             });
  return !ranks_hold_it && !final_is_kept();
}

bool conductor::machine::too_few_are_left(const cause&) const {
  return desk_.choice.width * desk_.choice.depth > roster_.usable();
}

bool conductor::machine::newer_may_return(const cause&) const {
  // What fails once need not have lost what it holds: steps are given up only after it failed repeatedly.
  return desk_.held.steps < chain_.newest().steps &&
         (some_may_be_dialling() || newest_held(true).steps > desk_.held.steps);
}

bool conductor::machine::keepers_may_hold_newer(const cause&) const {
  const auto left = std::max(desk_.held.steps, ledger_.newest().steps);
  return left < chain_.newest().steps && roster_.has_keepers() && !asks<abort_generation>();
}

bool conductor::machine::checkpoint_is_newer(const cause&) const {
  return desk_.held.steps < chain_.newest().steps && desk_.held.steps < ledger_.newest().steps;
}

bool conductor::machine::checkpoint_can_be_read(const cause& x) const {
  return checkpoint_is_newer(x) && !reading_of(roster_, ledger_.newest(), job_.layers()).readers.empty();
}

bool conductor::machine::checkpoint_is_lost(const cause& x) const {
  // Whoever has the rest of what this job wrote may come back. What the user named must be there.
  if (!checkpoint_is_newer(x))
    return false;
  const auto reading = reading_of(roster_, ledger_.newest(), job_.layers());
  return reading.damaged || (ledger_.newest().by == generation{} && reading.asked && !reading.passing);
}

bool conductor::machine::change_pays(const cause&) const {
  const auto& grid = generations_.current->grid;
  if (desk_.choice.width == 0 || too_few_are_left({}))
    return false; // it goes on while it can
  bool all_stay = true, refused = false;
  for (const auto& [id, rank] : generations_.current->rank_of) {
    const auto* slot = roster_.find(id);
    all_stay &= slot && !slot->leaving && !slot->excluded;
    refused |= slot && slot->no_new_place;
  }
  const bool same = desk_.choice.width == grid.width && desk_.choice.depth == grid.depth;
  return !all_stay || !(refused || same); // what failed beside this generation would fail again
}

bool conductor::machine::ends_before_change(const cause& x) const {
  const auto* slot = roster_.find(x.slot);
  return next_is_good({}) && slot && slot->leaving && stand_.limit && *slot->leaving < *stand_.limit;
}

bool conductor::machine::is_of_change(const cause& x) const {
  return ends_before_change(x) && (generations_.takes_part(x.slot) || generations_.has_place(x.slot));
}

bool conductor::machine::others_take_over(const cause& x) const {
  return generations_.has_place(x.slot) && !roster_.has_keepers() && roster_.usable() > 0;
}

bool conductor::machine::outlasts_notice(const cause&) const {
  const auto moment = last_moment_to_move();
  return moment && *moment <= now_ && can_be_moved();
}

bool conductor::machine::all_are_here(const cause&) const {
  return std::ranges::all_of(generations_.current->rank_of, [&](const auto& x) {
    const auto* slot = roster_.find(x.first);
    return slot && !slot->excluded;
  });
}

bool conductor::machine::each_stage_answered(const cause&) const {
  return generations_.current->answered_stages.size() == generations_.current->grid.depth;
}

bool conductor::machine::keepers_are_to_be_asked(const cause&) const {
  return chain_.is_open() && !generations_.current->keepers_asked && generations_.current->lacks_stage();
}

bool conductor::machine::holder_may_be_dialling(const cause&) const {
  return chain_.is_open() && some_may_be_dialling() && generations_.current->lacks_stage();
}

bool conductor::machine::only_holder_is_awaited(const cause&) const {
  return now_ < *changes_.stall_began() + progress_limit() && generations_.current->only_holder_among(stand_.awaited);
}

} // namespace parcae
