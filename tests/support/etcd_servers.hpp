#pragma once

// A cluster of real etcd servers on this machine, for tests.

#include "runtime/child/process.hpp"
#include "runtime/process/address.hpp"
#include "tests/support/free_port.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// May be missing.
inline const std::filesystem::path etcd_program = PARCAE_ETCD;

/// For etcd, in PEM files: an authority, what members show, and what they ask for.
struct etcd_certificates {
  std::filesystem::path authority;
  std::filesystem::path server; ///< certificate and key, for 127.0.0.1
  std::filesystem::path client; ///< likewise
};

/// In a folder, by the tool openssl. The members' gateway asks themselves, and shows what they show.
inline etcd_certificates make_etcd_certificates(const std::filesystem::path& folder) {
  const std::string script = R"(set -e; cd "$0"
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -days 1 -subj /CN=authority -keyout ca.key -out ca.pem
for x in server client; do
  openssl req $key -subj /CN=$x -keyout $x.key -out $x.csr
  printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > $x.txt
  openssl x509 -req -days 1 -in $x.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile $x.txt -out $x.pem
  cat $x.key >> $x.pem
done)";
  std::filesystem::create_directories(folder);
  const auto log = folder / "log";
  child_process tool({{"/bin/sh", "-c", script, folder}, log, log});
  if (tool.wait(std::chrono::seconds(30)) != 0)
    throw std::runtime_error("openssl makes no certificates, see " + log.string());
  return {folder / "ca.pem", folder / "server.pem", folder / "client.pem"};
}

/// Not thread-safe.
class etcd_servers {
public:
  /// With `shown` members speak TLS to who has a certificate of that authority, and to nobody else. `more`: options of
  /// each.
  explicit etcd_servers(int members, std::optional<etcd_certificates> shown = {}, std::vector<std::string> more = {}) :
      shown_(std::move(shown)), more_(std::move(more)), members_(static_cast<std::size_t>(members)) {
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
    const auto clients = (shown_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(x.clients);
    std::vector<std::string> arguments{etcd_program,
                                       "--name",
                                       name,
                                       "--data-dir",
                                       folder_.path() / name,
                                       "--initial-cluster",
                                       all,
                                       "--listen-client-urls",
                                       clients,
                                       "--advertise-client-urls",
                                       clients,
                                       "--listen-peer-urls",
                                       url(x.peers),
                                       "--initial-advertise-peer-urls",
                                       url(x.peers),
                                       "--unsafe-no-fsync"};
    if (shown_)
      arguments.insert(arguments.end(), {"--client-cert-auth", "--trusted-ca-file", shown_->authority, "--cert-file",
                                         shown_->server, "--key-file", shown_->server});
    arguments.insert(arguments.end(), more_.begin(), more_.end());
    x.process.emplace(launch_options{std::move(arguments), log, log});
  }

  child_process& member(int i) { return *members_.at(static_cast<std::size_t>(i)).process; }

  address where(int member) const { return {"127.0.0.1", members_.at(static_cast<std::size_t>(member)).clients}; }

  /// As --store says it.
  std::string store(const std::string& name = "parcae") const {
    std::string result = shown_ ? "etcds://" : "etcd://";
    for (const auto& x : members_)
      result += (&x == &members_.front() ? "127.0.0.1:" : ",127.0.0.1:") + std::to_string(x.clients);
    return result + "/" + name;
  }

private:
  struct one {
    std::uint16_t clients = 0, peers = 0;
    std::optional<child_process> process;
  };

  const scratch_folder folder_{"etcd"};
  const std::optional<etcd_certificates> shown_;
  const std::vector<std::string> more_;
  std::vector<one> members_;
};

} // namespace parcae
