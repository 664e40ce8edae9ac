#include "actors/conductor/phase.hpp"

#include <array>

namespace parcae {

namespace {

constexpr auto last = static_cast<std::size_t>(phase::ended);

constexpr std::array<const char*, last + 1> names{"recovering",   "waiting",    "planning",  "preparing", "running",
                                                  "readying",     "stopping",   "clearing",  "aborting",  "deciding",
                                                  "transferring", "activating", "finishing", "ended"};

std::string names_of(const phases& all) {
  std::string result;
  std::size_t count = 0;
  for (std::size_t i = 0; i <= last; ++i)
    if (all.contains(static_cast<phase>(i))) {
      result += (result.empty() ? "" : ", ") + std::string(names[i]);
      ++count;
    }
  return count == last ? "any" : result;
}

} // namespace

std::string to_string(phase x) {
  return names[static_cast<std::size_t>(x)];
}

std::string to_string(happening x) {
  constexpr std::array<const char*, static_cast<std::size_t>(happening::over) + 1> texts{
      "it is time to plan",
      "there is no slot to plan with",
      "the planner answered",
      "all answers are in",
      "all ranks stopped unasked",
      "a rank of g is lost, or failed",
      "a participant of g+1 is lost",
      "a slot is lost",
      "communication failed in g",
      "communication failed in g+1",
      "a participant cannot prepare g+1",
      "the limit passed",
      "a slot is under notice",
      "the last moment of those who alone hold a stage",
      "keepers hold something else",
      "the manager ends",
      "done, failed or cancelled"};
  return texts[static_cast<std::size_t>(x)];
}

std::string table_of(const std::vector<transition>& rows) {
  std::string result = "| in | when | if | does | then |\n|---|---|---|---|---|\n";
  for (const auto& x : rows)
    result += "| " + names_of(x.from) + " | " + to_string(x.on) + " | " + x.condition + " | " + x.does + " | " +
              (x.to ? to_string(*x.to) : "stays") + " |\n";
  return result;
}

} // namespace parcae
