#pragma once

// The one list of errors that parts of Parcae report to each other. Plain code; the link to caf::error is in
// type_ids.hpp.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace parcae {

/// Each value says whether trying again makes sense.
enum class parcae_error : std::uint8_t {
  wrong_protocol = 1,  ///< the peer speaks another protocol version; fatal for the process that dialled
  duplicate_name,      ///< a living instance has that name; the newcomer may try again until it is free
  lost_incarnation,    ///< that life was declared lost, or is of another manager; come back as a new incarnation, empty
  outdated_manager,    ///< another one knows more than its journal; that one may come back
  malformed_request,   ///< bytes that cannot be decoded, or values out of range; do not repeat
  unknown_job,         ///< no job has that number
  unknown_instance,    ///< no living instance has that name
  too_few_instances,   ///< more instances asked for than there are
  job_over,            ///< the job ended already
  too_many_jobs,       ///< as many wait as the manager keeps; cancel some
  unreachable_manager, ///< no manager answered in time; may be repeated
  not_permitted,       ///< a certificate does not allow it; fatal for the process that asked
  internal,            ///< an actor failed; see its log
};

/// The enumerator's name; "unknown": it is none of them.
std::string_view to_string(parcae_error x);

/// The error with that name.
std::optional<parcae_error> parse_parcae_error(std::string_view name);

/// What went wrong, for the one that asked.
struct detailed_error {
  parcae_error code;
  std::string details;
};

/// For people: what happened in general terms, then the details if there are any.
std::string render(parcae_error x, std::string_view details);

} // namespace parcae
