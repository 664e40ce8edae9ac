#include "runtime/node/last_words.hpp"

#include "runtime/process/client.hpp"

#include <unistd.h>

#include <vector>

namespace parcae {

std::function<void()> last_words_of(const black_box& box, const std::string& instance, const address& manager) {
  return [&box, arguments = std::vector<std::string>{"parcae-node", "--last-words", std::to_string(box.descriptor()),
                                                     "--name", instance, "--manager", to_string(manager)}] {
    if (box.end().empty())
      return;
    std::vector<const char*> pointers;
    for (const auto& x : arguments)
      pointers.push_back(x.c_str());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", const_cast<char* const*>(pointers.data()));
  };
}

void deliver_last_words(const black_box& box, const std::string& instance, const address& manager) {
  manager_client(manager).report({instance, box.end(), box.lines()});
}

} // namespace parcae
