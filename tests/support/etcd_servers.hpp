#pragma once

// A cluster of real etcd servers on this machine, for tests.

#include "runtime/child/process.hpp"
#include "runtime/process/address.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// May be missing.
inline const std::filesystem::path etcd_program = PARCAE_ETCD;

/// Not thread-safe.
class etcd_servers {
public:
  explicit etcd_servers(int members) : members_(static_cast<std::size_t>(members)) {
    for (auto& x : members_)
      x = {free_port(), free_port(), {}};
    for (int i = 0; i < members; ++i)
      start(i);
  }

  /// Again, with what it had on disk. Does not wait until it answers.
  void start(int member) {
    const auto url = [](std::uint16_t port) { return "http://127.0.0.1:" + std::to_string(port); };
    std::string all;
    for (std::size_t i = 0; i < members_.size(); ++i)
      all += (i ? ",m" : "m") + std::to_string(i) + "=" + url(members_[i].peers);
    auto& x = members_.at(static_cast<std::size_t>(member));
    const auto name = "m" + std::to_string(member);
    const auto log = folder_.path() / (name + ".log");
    x.process.emplace(launch_options{{etcd_program, "--name", name, "--data-dir", folder_.path() / name,
                                      "--initial-cluster", all, "--listen-client-urls", url(x.clients),
                                      "--advertise-client-urls", url(x.clients), "--listen-peer-urls", url(x.peers),
                                      "--initial-advertise-peer-urls", url(x.peers), "--unsafe-no-fsync"},
                                     log,
                                     log});
  }

  child_process& member(int i) { return *members_.at(static_cast<std::size_t>(i)).process; }

  address where(int member) const { return {"127.0.0.1", members_.at(static_cast<std::size_t>(member)).clients}; }

  /// As --store says it.
  std::string store(const std::string& name = "parcae") const {
    std::string result = "etcd://";
    for (const auto& x : members_)
      result += (&x == &members_.front() ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(x.clients);
    return result + "/" + name;
  }

  /// Nobody listens there, now.
  static std::uint16_t free_port() {
    boost::asio::io_context context;
    return boost::asio::ip::tcp::acceptor(context, {boost::asio::ip::address_v4::loopback(), 0})
        .local_endpoint()
        .port();
  }

private:
  struct one {
    std::uint16_t clients = 0, peers = 0;
    std::optional<child_process> process;
  };

  const scratch_folder folder_{"etcd"};
  std::vector<one> members_;
};

} // namespace parcae
