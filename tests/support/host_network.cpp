#include "tests/support/host_network.hpp"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <thread>

namespace parcae {

namespace {

using steady_clock = std::chrono::steady_clock;

int namespace_of(const std::string& name) {
  return ::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
}

/// Bursts are what passes in 10 ms, and at least some full frames.
std::string shaped(int mbit, std::chrono::milliseconds queue) {
  return "tbf rate " + std::to_string(mbit) + "mbit burst " + std::to_string(std::max(16, mbit * 10 / 8)) +
         "kb latency " + std::to_string(queue.count()) + "ms";
}

/// The far end of an eth0 that is made there; −1: it is not to be had.
int tap_in(const std::string& name) {
  int result = -1;
  std::thread([&] { // which is then thrown away
    const int there = namespace_of(name);
    if (there >= 0 && ::setns(there, CLONE_NEWNET) == 0)
      result = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    ifreq wanted{};
    std::strncpy(wanted.ifr_name, "eth0", IFNAMSIZ - 1);
    wanted.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (result >= 0 && ::ioctl(result, TUNSETIFF, &wanted) != 0) {
      ::close(result);
      result = -1;
    }
    ::close(there);
  })
      .join();
  return result;
}

} // namespace

/// Ethernet between TAP devices; each frame leaves so long after it came. The kernel's netem is not everywhere.
class slow_switch {
public:
  slow_switch(std::vector<int> ports, std::chrono::milliseconds delay) :
      ports_(std::move(ports)), cut_(ports_.size()), delay_(delay), thread_([this] { run(); }) {}

  ~slow_switch() {
    over_ = true;
    thread_.join();
    for (const int x : ports_)
      ::close(x);
  }

  void cut(std::size_t port, bool now) { cut_[port] = now; }

private:
  struct frame {
    steady_clock::time_point due;
    std::size_t from;
    std::string bytes;
  };

  void run() {
    std::vector<pollfd> ready;
    for (const int x : ports_)
      ready.push_back({x, POLLIN, 0});
    std::array<char, 4096> bytes;
    while (!over_) {
      ::poll(ready.data(), ready.size(), waiting_.empty() ? 20 : 1);
      const auto now = steady_clock::now();
      for (std::size_t i = 0; i < ports_.size(); ++i)
        for (ssize_t n = 0; (n = ::read(ports_[i], bytes.data(), bytes.size())) > 12;)
          waiting_.push_back({now + delay_, i, {bytes.data(), static_cast<std::size_t>(n)}});
      while (!waiting_.empty() && waiting_.front().due <= steady_clock::now()) {
        pass(waiting_.front());
        waiting_.pop_front();
      }
    }
  }

  void pass(const frame& x) {
    if (cut_[x.from])
      return;
    ports_by_address_[x.bytes.substr(6, 6)] = x.from;
    const auto to = ports_by_address_.find(x.bytes.substr(0, 6));
    for (std::size_t i = 0; i < ports_.size(); ++i)
      if (i != x.from && !cut_[i] && (to == ports_by_address_.end() || to->second == i)) [[maybe_unused]]
        const auto lost = ::write(ports_[i], x.bytes.data(), x.bytes.size()); // as networks do
  }

  const std::vector<int> ports_;
  std::vector<std::atomic<bool>> cut_;
  const std::chrono::milliseconds delay_;
  std::deque<frame> waiting_;
  std::map<std::string, std::size_t> ports_by_address_;
  std::atomic<bool> over_ = false;
  std::thread thread_; ///< last: it uses the others
};

host_network::host_network(int hosts, std::chrono::milliseconds delay) :
    prefix_("parcae" + std::to_string(::getpid())), hosts_(hosts),
    home_(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) {
  if (::geteuid() != 0) {
    problem_ = "network namespaces need root";
    return;
  }
  try {
    run("ip netns add " + prefix_ + "-switch");
    if (delay.count() == 0)
      run("ip -n " + prefix_ + "-switch link add bridge up type bridge");
    std::vector<int> taps;
    for (int i = 0; i < hosts; ++i) {
      const auto there = name_of(i);
      run("ip netns add " + there);
      run("ip -n " + there + " link set lo up");
      if (delay.count() == 0)
        link(i);
      else
        taps.push_back(tap_in(there));
      run("ip -n " + there + " link set eth0 up");
      run("ip -n " + there + " addr add " + address(i) + "/24 dev eth0");
      run("ip -n " + there + " addr add " + address6(i) + "/64 dev eth0 nodad || true"); // where there is IPv6
    }
    if (delay.count() > 0)
      relay_ = std::make_unique<slow_switch>(std::move(taps), delay);
  } catch (const std::runtime_error& e) {
    problem_ = e.what();
  }
}

host_network::~host_network() {
  enter(-1);
  relay_.reset();
  for (int i = -1; i < hosts_; ++i) {
    const auto command = "ip netns del " + (i < 0 ? prefix_ + "-switch" : name_of(i)) + " 2>/dev/null";
    [[maybe_unused]] const int gone = std::system(command.c_str());
  }
  ::close(home_);
}

void host_network::run(const std::string& command) {
  const auto all = "(" + command + ") 2>&1";
  FILE* out = ::popen(all.c_str(), "re");
  std::string said;
  for (std::array<char, 256> piece; out && std::fgets(piece.data(), piece.size(), out);)
    said += piece.data();
  if (!out || ::pclose(out) != 0)
    throw std::runtime_error("`" + command + "`: " + said);
}

void host_network::link(int host) {
  const auto port = "port" + std::to_string(host), there = prefix_ + "-switch";
  run("ip -n " + there + " link add " + port + " type veth peer name eth0 netns " + name_of(host));
  run("ip -n " + there + " link set " + port + " master bridge up");
  shape(there, port, usual_rate, usual_queue);
}

// Not `qdisc replace`: tbf keeps what waits, and never sends of that what is larger than the new rate's burst.
void host_network::shape(const std::string& where, const std::string& device, int mbit,
                         std::chrono::milliseconds queue) {
  const auto of = " dev " + device + " root ";
  run("tc -n " + where + " qdisc del" + of + "2>/dev/null; tc -n " + where + " qdisc add" + of + shaped(mbit, queue));
}

void host_network::set_rate(int host, int mbit, std::chrono::milliseconds queue) {
  shape(prefix_ + "-switch", "port" + std::to_string(host), mbit, queue);
}

void host_network::set_loopback_rate(int host, int mbit, std::chrono::milliseconds queue) {
  shape(name_of(host), "lo", mbit, queue);
}

std::vector<std::string> host_network::command_on(int host) const {
  return {"/usr/bin/env", "ip", "netns", "exec", name_of(host)};
}

void host_network::enter(int host) {
  const int there = host < 0 ? home_ : namespace_of(name_of(host));
  if (::setns(there, CLONE_NEWNET) != 0)
    throw std::runtime_error("cannot enter the network of host " + std::to_string(host));
  if (host >= 0)
    ::close(there);
}

void host_network::set_link(int host, bool up) {
  if (relay_)
    relay_->cut(static_cast<std::size_t>(host), !up);
  else
    run("ip -n " + prefix_ + "-switch link set port" + std::to_string(host) + (up ? " up" : " down"));
}

void host_network::cut(int host) {
  set_link(host, false);
}

void host_network::heal(int host) {
  set_link(host, true);
}

void host_network::keep_apart(int host, bool apart) {
  run("ip -n " + prefix_ + "-switch link set dev port" + std::to_string(host) + " type bridge_slave isolated " +
      (apart ? "on" : "off"));
}

} // namespace parcae
