#include "runtime/node/last_words.hpp"

#include "runtime/process/client.hpp"

#include <unistd.h>

#include <vector>

namespace parcae {

std::function<void()> last_words_of(const black_box& box, const std::string& instance, const manager_access& manager) {
  std::vector<std::string> arguments{"parcae-node", "--last-words", std::to_string(box.descriptor()), "--name",
                                     instance,      "--manager",    to_string(manager.managers)};
  if (!manager.bundle.empty())
    arguments.insert(arguments.end(), {"--bundle", manager.bundle.string()});
  return [&box, arguments = std::move(arguments)] {
    if (box.end().empty())
      return;
    std::vector<const char*> pointers;
    for (const auto& x : arguments)
      pointers.push_back(x.c_str());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", const_cast<char* const*>(pointers.data()));
  };
}

bool deliver_last_words(const black_box& box, const std::string& instance, const manager_access& manager) {
  try {
    manager_client(manager).report(
        {.instance = instance, .what = box.end(), .lines = box.lines(), .job = box.job(), .ended = true});
    return true;
  } catch (const client_error&) {
    return false;
  }
}

} // namespace parcae
