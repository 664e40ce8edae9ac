#include "actors/conductor/phase.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace parcae {

namespace {

using enum phase;

/// The transition table. A transition that is not in it is a defect: it is logged as an error and taken all the same,
/// because the conductor is the only one who can still end the change.
///
///   from          to            when
///   waiting       planning      enough may be there
///   planning      waiting       the planner found nothing that fits, or no worker is left
///   planning      preparing     a configuration was chosen
///   planning      finishing     the version to go on from is the final one
///   preparing     transferring  all are PREPARED
///   preparing     clearing      a participant was lost, failed or missed the limit
///   running       readying      another configuration was chosen
///   running       stopping      those under notice who alone hold a stage have trained as long as they could
///   running       aborting      a place was lost, communication failed, or there was no progress
///   running       finishing     all ranks STOPPED at the final version
///   readying      running       g+1 was given up
///   readying      stopping      all are PREPARED
///   readying      aborting      as from running
///   readying      finishing     as from running
///   stopping      transferring  all ranks STOPPED, g+1 is still good
///   stopping      planning      all ranks STOPPED, g+1 is not
///   stopping      aborting      a place was lost, communication failed, or the limit passed
///   stopping      finishing     all ranks STOPPED at the final version
///   transferring  activating    all are READY or DELIVERED
///   transferring  clearing      a participant was lost, failed or missed the limit
///   clearing      planning      all living participants ABORTED
///   activating    running       all are ACTIVE
///   activating    aborting      a place was lost, communication failed, or the limit passed: g+1 may be running
///   activating    finishing     all are ACTIVE and STOPPED at the final version
///   aborting      deciding      all living ranks ABORTED
///   deciding      planning      all living ranks DECIDED
///   finishing     planning      a place was lost, or a rank has to send its state again
///   any           ended         a keeper holds the final version, cancelled, or failed
constexpr std::pair<phase, phase> transitions[] = {
    {waiting, planning},       {planning, waiting},   {planning, preparing},      {planning, finishing},
    {preparing, transferring}, {preparing, clearing}, {running, readying},        {running, stopping},
    {running, aborting},       {running, finishing},  {readying, running},        {readying, stopping},
    {readying, aborting},      {readying, finishing}, {stopping, transferring},   {stopping, planning},
    {stopping, aborting},      {stopping, finishing}, {transferring, activating}, {transferring, clearing},
    {clearing, planning},      {activating, running}, {activating, aborting},     {activating, finishing},
    {aborting, deciding},      {deciding, planning},  {deciding, waiting},        {finishing, planning},
};

} // namespace

bool allowed(phase from, phase to) {
  return to == ended || std::ranges::find(transitions, std::pair{from, to}) != std::end(transitions);
}

std::string to_string(phase x) {
  constexpr std::array<const char*, static_cast<std::size_t>(ended) + 1> names{
      "waiting",  "planning", "preparing",    "running",    "readying",  "stopping", "clearing",
      "aborting", "deciding", "transferring", "activating", "finishing", "ended"};
  return names[static_cast<std::size_t>(x)];
}

} // namespace parcae
