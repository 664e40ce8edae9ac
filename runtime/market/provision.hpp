#pragma once

// Tells a hook, a program or a URL, what instances are to be, on a thread of its own.

#include "runtime/market/hook_schedule.hpp"
#include "runtime/market/hook_text.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

struct provision_options {
  std::string hook;                    ///< path of a program, or http(s) URL
  std::string manager;                 ///< whom the instances are for: HOST:PORT
  std::filesystem::path authorities{}; ///< PEM file; empty: the system's. Of https.
  hook_pace pace{};
};

/// What became of a call.
struct provision_answer {
  std::uint64_t request = 0;    ///< which was said
  std::vector<pool_word> pools; ///< one for each of its pools, unless there is a problem
  std::string problem;          ///< one line: nothing is known, it is called again; empty: none
};

class provisioner {
public:
  /// Returns at once, and calls nobody before something is wanted. `on_answer` is called after each call, on this
  /// object's thread, must be quick and must not throw. Throws std::runtime_error: the hook is no URL and no program,
  /// `authorities` cannot be read.
  provisioner(provision_options options, std::function<void(const provision_answer&)> on_answer);

  /// Ends within milliseconds, in the midst of a call, too: the program and its group are killed.
  ~provisioner();

  /// From now on this is to be, whatever was wanted before. A call that is under way goes on; the next one says this.
  /// From any thread; returns at once.
  void want(provision_request x);

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
