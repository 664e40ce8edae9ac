#pragma once

// Hosts of a test's own: network namespaces, an Ethernet between them, and what may happen to it. Needs root.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

class slow_switch;

/// Nothing of it is in the namespace of the test, and nothing is left of it.
class host_network {
public:
  static constexpr int usual_rate = 400; ///< Mbit/s
  static constexpr std::chrono::milliseconds usual_queue{100};

  /// Hosts h0, h1, …, each connected by a link of `usual_rate`; with a delay every frame takes so long. Where that
  /// is not permitted problem() says why, and nothing else may be called.
  explicit host_network(int hosts, std::chrono::milliseconds delay = {});
  ~host_network();
  host_network(const host_network&) = delete;
  host_network& operator=(const host_network&) = delete;

  const std::string& problem() const { return problem_; }

  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  static std::string address6(int host) { return "fd77::" + std::to_string(host + 1); }

  /// What makes a command run on that host, without a process in between.
  std::vector<std::string> command_on(int host) const;
  /// This thread, and those that it starts, are on that host from now on; −1: where they were.
  void enter(int host);

  /// Nothing gets through to it or from it any more, and nobody is told.
  void cut(int host);
  void heal(int host);
  /// What goes to that host passes at this rate from now on; what would wait for longer than `queue` is dropped, and
  /// what waits when this is said. Only without a delay.
  void set_rate(int host, int mbit, std::chrono::milliseconds queue = usual_queue);
  /// What processes of that host say to each other passes at this rate from now on, all of it together: without TLS, as
  /// on one machine, but not faster than a network.
  void set_loopback_rate(int host, int mbit, std::chrono::milliseconds queue = usual_queue);
  /// Hosts that are apart reach all but each other. Only without a delay.
  void keep_apart(int host, bool apart);

private:
  std::string name_of(int host) const { return prefix_ + "-h" + std::to_string(host); }
  void run(const std::string& command);
  void link(int host);
  void shape(const std::string& where, const std::string& device, int mbit, std::chrono::milliseconds queue);
  void set_link(int host, bool up);

  std::string prefix_, problem_;
  int hosts_ = 0, home_ = -1;
  std::unique_ptr<slow_switch> relay_; ///< null: a bridge
};

} // namespace parcae
