#include "protocols/wire/errors.hpp"

#include "protocols/base/enum_text.hpp"

namespace parcae {

BOOST_DESCRIBE_ENUM(parcae_error, wrong_protocol, duplicate_name, lost_incarnation, outdated_manager, malformed_request,
                    unknown_job, unknown_instance, too_few_instances, job_over, too_many_jobs, unreachable_manager,
                    not_permitted, internal)

namespace {

std::string_view explanation_of(parcae_error x) {
  switch (x) {
  case parcae_error::wrong_protocol:
    return "the peer speaks another protocol version";
  case parcae_error::duplicate_name:
    return "a living instance has that name";
  case parcae_error::lost_incarnation:
    return "this life of the instance was declared lost";
  case parcae_error::outdated_manager:
    return "another manager knows more than this one's journal";
  case parcae_error::malformed_request:
    return "malformed request";
  case parcae_error::unknown_job:
    return "no such job";
  case parcae_error::unknown_instance:
    return "no such instance";
  case parcae_error::too_few_instances:
    return "too few instances";
  case parcae_error::job_over:
    return "the job has ended";
  case parcae_error::too_many_jobs:
    return "the queue is full";
  case parcae_error::unreachable_manager:
    return "no manager answers";
  case parcae_error::not_permitted:
    return "not permitted";
  case parcae_error::internal:
    return "internal error";
  }
  return "an error this build does not know";
}

} // namespace

std::string_view to_string(parcae_error x) {
  return enum_name(x);
}

std::optional<parcae_error> parse_parcae_error(std::string_view name) {
  return parse_enum<parcae_error>(name);
}

std::string render(parcae_error x, std::string_view details) {
  std::string result(explanation_of(x));
  if (!details.empty())
    result.append(": ").append(details);
  return result;
}

} // namespace parcae
