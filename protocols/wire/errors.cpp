#include "protocols/wire/errors.hpp"

#include <array>

namespace parcae {

namespace {

struct entry {
  parcae_error value;
  std::string_view name;
  std::string_view text;
};

constexpr std::array entries{
    entry{parcae_error::wrong_protocol, "wrong_protocol", "the peer speaks another protocol version"},
    entry{parcae_error::duplicate_name, "duplicate_name", "a living instance has that name"},
    entry{parcae_error::lost_incarnation, "lost_incarnation", "this life of the instance was declared lost"},
    entry{parcae_error::outdated_manager, "outdated_manager", "another manager knows more than this one's journal"},
    entry{parcae_error::malformed_request, "malformed_request", "malformed request"},
    entry{parcae_error::unknown_job, "unknown_job", "no such job"},
    entry{parcae_error::unknown_instance, "unknown_instance", "no such instance"},
    entry{parcae_error::too_few_instances, "too_few_instances", "too few instances"},
    entry{parcae_error::job_over, "job_over", "the job has ended"},
    entry{parcae_error::too_many_jobs, "too_many_jobs", "the queue is full"},
    entry{parcae_error::unreachable_manager, "unreachable_manager", "no manager answers"},
    entry{parcae_error::not_permitted, "not_permitted", "not permitted"},
    entry{parcae_error::internal, "internal", "internal error"},
};

// One entry per value, in order: value n is entry n - 1.
constexpr bool complete() {
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (static_cast<std::size_t>(entries[i].value) != i + 1)
      return false;
  return entries.back().value == parcae_error::internal;
}
static_assert(complete());

const entry* find(parcae_error x) {
  auto i = static_cast<std::size_t>(x);
  return i >= 1 && i <= entries.size() ? &entries[i - 1] : nullptr;
}

} // namespace

std::string_view to_string(parcae_error x) {
  auto e = find(x);
  return e ? e->name : "unknown_error";
}

std::optional<parcae_error> parse_parcae_error(std::string_view name) {
  for (const auto& e : entries)
    if (e.name == name)
      return e.value;
  return std::nullopt;
}

std::string render(parcae_error x, std::string_view details) {
  auto e = find(x);
  std::string result{e ? e->text : "an error this build does not know"};
  if (!details.empty())
    result.append(": ").append(details);
  return result;
}

} // namespace parcae
