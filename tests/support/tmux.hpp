#pragma once

// A real terminal for tests: tmux in the foreground of a child process, so that nothing outlives the test.

#include "runtime/child/process.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace parcae {

class tmux {
public:
  /// Terminals of this server live until it goes. Its files go to `folder`. Throws std::runtime_error.
  explicit tmux(std::filesystem::path folder) :
      folder_(std::move(folder)), server_({{"/usr/bin/tmux", "-S", socket(), "-f", configuration(), "-D"},
                                           folder_ / "tmux.out",
                                           folder_ / "tmux.out"}) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (command({"show-options", "-s"}).first != 0)
      if (server_.poll() || std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("tmux does not run");
  }

  /// A shell runs a script in a terminal of that name and size. The terminal stays when the script has ended.
  void open(const std::string& name, int columns, int rows, const std::string& script) {
    const auto path = folder_ / (name + ".sh");
    std::ofstream(path) << "export LC_ALL=C.UTF-8\n" << script << "\nexec sleep 1000\n";
    expect({"new-session", "-d", "-s", name, "-x", std::to_string(columns), "-y", std::to_string(rows),
            "sh " + path.string()});
  }

  void resize(const std::string& name, int columns, int rows) {
    expect({"resize-window", "-t", name, "-x", std::to_string(columns), "-y", std::to_string(rows)});
  }

  /// A key as tmux names it: "q", "C-c".
  void press(const std::string& name, const std::string& key) { expect({"send-keys", "-t", name, key}); }

  /// What the terminal shows: a line per row, without spaces at its end. `escapes`: with the sequences for colours.
  std::string screen(const std::string& name, bool escapes = false) {
    std::vector<std::string> all{"capture-pane", "-p", "-t", name};
    if (escapes)
      all.push_back("-e");
    return expect(std::move(all));
  }

  /// The screen once it is as wanted, or after the limit.
  std::string wait(const std::string& name, const std::function<bool(const std::string&)>& wanted) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
      auto now = screen(name);
      if (wanted(now) || std::chrono::steady_clock::now() > deadline)
        return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  std::string wait_for(const std::string& name, const std::string& text) {
    return wait(name, [&](const std::string& x) { return x.find(text) != std::string::npos; });
  }

private:
  static constexpr std::chrono::seconds limit{60};

  std::string socket() const { return (folder_ / "tmux.socket").string(); }

  std::string configuration() const {
    const auto path = folder_ / "tmux.conf";
    std::ofstream(path) << "set -g status off\n";
    return path.string();
  }

  std::pair<int, std::string> command(std::vector<std::string> arguments) {
    std::vector<std::string> all{"/usr/bin/tmux", "-N", "-u", "-S", socket()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto output = folder_ / "tmux.answer";
    std::filesystem::remove(output);
    const auto status = child_process({std::move(all), output, output}).wait(limit);
    std::ifstream file(output);
    return {status.value_or(-1), {std::istreambuf_iterator<char>(file), {}}};
  }

  std::string expect(std::vector<std::string> arguments) {
    const auto what = arguments.front();
    auto [status, output] = command(std::move(arguments));
    if (status != 0)
      throw std::runtime_error("tmux " + what + ": " + output);
    return output;
  }

  std::filesystem::path folder_;
  child_process server_;
};

} // namespace parcae
