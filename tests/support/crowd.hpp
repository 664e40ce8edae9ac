#pragma once

// Nodes that only say who they are, each by a connection of its own: a thousand in one process.

#include "protocols/wire/type_ids.hpp"
#include "tests/support/bare_peer.hpp"
#include "tests/support/other_node.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <cstdio>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

/// HELLO of worker n0000, as CAF writes it, of actors 1 (its instance) and 2 (its slot) of a node that is nobody's.
class hello_writer {
public:
  /// `processor`, `warning`: what each says of itself.
  hello_writer(const std::string& processor, const std::string& warning) {
    auto nobody = system_.spawn(ignore_all);
    const auto actor = [&](caf::actor_id id) { return on_another_node(system_, nobody, id); };
    hello x;
    x.name = name_of(0);
    x.life = incarnation{1};
    x.host = "127.0.0.1";
    x.port = 1;
    x.processor = processor;
    x.warning = warning;
    x.memory.bytes = 1 << 30;
    auto message = caf::make_message(x, caf::actor_cast<instance_actor>(actor(1)),
                                     std::vector<slot_actor>{caf::actor_cast<slot_actor>(actor(2))});
    text_ = bytes_of(std::vector<caf::strong_actor_ptr>{}, message);
    node_ = bytes_of(caf::make_node_id(7, {1}));
    caf::anon_send_exit(nobody, caf::exit_reason::user_shutdown);
  }

  static std::string name_of(int number) {
    char result[8];
    std::snprintf(result, sizeof result, "n%04d", number);
    return result;
  }

  /// `node`: as CAF writes it.
  std::string of(int number, const std::string& node) const {
    auto result = text_;
    for (const auto& [from, to] : {std::pair(node_, node), {name_of(0), name_of(number)}})
      for (auto at = result.find(from); at != result.npos; at = result.find(from, at + from.size()))
        result.replace(at, from.size(), to);
    return result;
  }

private:
  struct config : caf::actor_system_config {
    config() { parcae::add_message_types(*this); }
  };

  template <class... Ts>
  std::string bytes_of(const Ts&... xs) {
    std::vector<char> result;
    caf::binary_serializer sink(system_, result);
    if (sink(const_cast<Ts&>(xs)...))
      throw std::runtime_error("what is ours can be written");
    return {result.begin(), result.end()};
  }

  config settings_;
  caf::actor_system system_{settings_};
  std::string text_, node_;
};

/// Nodes that join, and say HELLO each second. Their connections end with it.
class crowd {
public:
  explicit crowd(const std::string& processor = "cpu", const std::string& warning = {}) : writer_(processor, warning) {}

  void join(std::uint16_t port, int number) {
    constexpr std::uint32_t first_process = 5'000'000; // of no real one
    auto& x = all_.emplace_back(port, first_process + static_cast<std::uint32_t>(number));
    hellos_.push_back(writer_.of(number, x.self));
    greet(all_.size() - 1);
  }

  /// To be called often.
  void beat() {
    if (clock::now() < next_)
      return;
    next_ = clock::now() + std::chrono::seconds(1);
    ++said_;
    for (std::size_t i = 0; i < all_.size(); ++i)
      greet(i);
  }

private:
  using clock = std::chrono::steady_clock;

  void greet(std::size_t i) {
    auto& x = all_[i];
    x.heard();
    if (!x.say(x.front, bare_peer::statement + said_, hellos_[i], 1))
      throw std::runtime_error("the connection of node " + std::to_string(i) + " has ended");
  }

  hello_writer writer_;
  std::deque<bare_peer> all_;
  std::vector<std::string> hellos_;
  std::uint64_t said_ = 1;
  clock::time_point next_ = clock::now() + std::chrono::seconds(1);
};

} // namespace parcae
