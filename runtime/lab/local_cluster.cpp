#include "runtime/lab/local_cluster.hpp"

#include "protocols/base/text.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

namespace parcae {

namespace {

constexpr std::chrono::seconds start_limit{20};
constexpr std::chrono::milliseconds poll_interval{10};

// The first line on stdout is "listening on HOST:PORT".
address listening_address(const std::string& who, const std::filesystem::path& output, child_process& process) {
  const std::string before = "listening on ";
  auto deadline = std::chrono::steady_clock::now() + start_limit;
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream file(output);
    std::string line;
    // Without its end the line may still be incomplete.
    if (std::getline(file, line) && !file.eof() && line.starts_with(before))
      return parse_address(line.substr(before.size()));
    if (auto status = process.wait(poll_interval))
      throw cluster_error(who + " ended with status " + std::to_string(*status));
  }
  throw cluster_error(who + " does not listen");
}

/// A port below those that the kernel gives to who dials (from 32768 on), so that a manager that is started again finds
/// it free. 0: there is none.
std::uint16_t port_to_return_to() {
  constexpr int tries = 100;
  std::random_device random;
  std::uniform_int_distribution<std::uint16_t> any(10'000, 32'767);
  for (int i = 0; i < tries; ++i) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(any(random));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = ::bind(probe, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
    ::close(probe);
    if (is_free)
      return ntohs(where.sin_port);
  }
  return 0;
}

} // namespace

local_cluster::local_cluster(std::filesystem::path programs, std::filesystem::path logs, cluster_ground ground) :
    ground_(std::move(ground)), programs_(std::move(programs)), logs_(std::move(logs)) {
  ::unsetenv("PARCAE_BUNDLE"); // it is another cluster's
  auto where = ground_.manager;
  if (where.port == 0)
    where.port = port_to_return_to();
  start_manager(to_string(where));
}

std::filesystem::path local_cluster::bundle(const std::string& name) const {
  return ground_.bundles.empty() ? std::filesystem::path() : ground_.bundles / (name + ".pem");
}

child_process local_cluster::start(const std::string& name, std::vector<std::string> command,
                                   const std::filesystem::path& output) {
  auto all = ground_.before ? ground_.before(name) : std::vector<std::string>();
  all.insert(all.end(), std::make_move_iterator(command.begin()), std::make_move_iterator(command.end()));
  if (!ground_.bundles.empty())
    all.insert(all.end(), {"--bundle", bundle(name).string()});
  return child_process({std::move(all), output, logs_ / (name + ".log")});
}

void local_cluster::start_manager(const std::string& listen) {
  const auto output = logs_ / "manager.out";
  std::vector<std::string> command{(programs_ / "parcae").string(), "manager", "--listen", listen, "--state",
                                   (logs_ / "manager").string()};
  command.insert(command.end(), ground_.manager_arguments.begin(), ground_.manager_arguments.end());
  manager_ = std::make_unique<child_process>(start("manager", std::move(command), output));
  where_ = listening_address("the manager", output, *manager_);
  reconnect();
}

void local_cluster::reconnect() {
  client_ = std::make_unique<manager_client>(access());
  client_->wait_for_answers(ground_.answers_within);
}

void local_cluster::restart_manager() {
  std::filesystem::remove(logs_ / "manager.out"); // what the one before said
  start_manager(to_string(where_));
}

std::string local_cluster::start_web() {
  const auto output = logs_ / "web.out";
  web_ = std::make_unique<child_process>(
      start("web", {(programs_ / "parcae").string(), "web", "--manager", to_string(where_), "--listen", "127.0.0.1:0"},
            output));
  return "http://" + to_string(listening_address("parcae web", output, *web_)) + "/";
}

void local_cluster::start_node(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{(programs_ / "parcae-node").string(), "--manager", to_string(where_), "--name", name,
                               // A notice to this machine is none to one that the node stands for.
                               "--cloud", "none"};
  if (!tells_machine_)
    all.push_back("--own-machine");
  all.insert(all.end(), arguments.begin(), arguments.end());
  nodes_.insert_or_assign(name, start(name, std::move(all), logs_ / (name + ".log")));
}

void local_cluster::start_keeper(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--role", "keeper", "--state", state_folder().string()});
  start_node(name, arguments);
}

child_process& local_cluster::node(const std::string& name) {
  auto i = nodes_.find(name);
  if (i == nodes_.end())
    throw cluster_error("no node " + name + " was started");
  return i->second;
}

status_reply local_cluster::wait_for(const std::string& what, std::chrono::milliseconds limit,
                                     const std::function<bool(const status_reply&)>& condition,
                                     const status_request& wanted) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    auto x = client_->status(wanted);
    if (condition(x))
      return x;
    if (std::chrono::steady_clock::now() >= deadline)
      throw cluster_error("waited " + text_of_duration(limit) + " in vain for " + what);
    std::this_thread::sleep_for(poll_interval);
  }
}

std::size_t living(const status_reply& x, const std::string& role) {
  return static_cast<std::size_t>(std::count_if(x.instances.begin(), x.instances.end(),
                                                [&](const auto& i) { return i.role == role && i.state != "lost"; }));
}

const job_status& job_of(const status_reply& x, std::uint64_t id) {
  auto i = std::find_if(x.jobs.begin(), x.jobs.end(), [&](const auto& j) { return j.id == id; });
  if (i == x.jobs.end())
    throw cluster_error("no job " + std::to_string(id));
  return *i;
}

} // namespace parcae
