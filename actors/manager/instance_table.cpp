#include "actors/manager/instance_table.hpp"

#include "protocols/base/enum_text.hpp"
#include "protocols/choreography/build.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

namespace parcae {

namespace {

constexpr std::size_t max_lost_lives = 100'000;

constexpr std::chrono::seconds least_change{1}; // of a notice: one that counts down by less is none that is new

constexpr std::uint64_t max_slot_bytes = std::uint64_t{1} << 50;

template <class T>
void remember_life(std::deque<T>& lives, const T& x) {
  lives.push_back(x);
  if (lives.size() > max_lost_lives)
    lives.pop_front();
}

bool good_name(const std::string& x) {
  return !x.empty() && x.size() <= 100 &&
         std::all_of(x.begin(), x.end(), [](unsigned char c) { return c > ' ' && c < 127 && c != '/'; });
}

bool good_processor(const std::string& x) {
  return x.size() <= 512 && std::all_of(x.begin(), x.end(), [](unsigned char c) { return c >= ' ' && c < 127; });
}

/// Other nodes dial it, and send it the tokens of their generations.
bool is_loopback(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1)
    return (ntohl(v4.s_addr) >> 24) == IN_LOOPBACKNET;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/// A name or an address, other than those that stand for all of a machine's.
bool can_be_dialled(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1)
    return v4.s_addr != INADDR_ANY;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1)
    return !IN6_IS_ADDR_UNSPECIFIED(&v6);
  return !host.empty() && host.size() <= 253 && std::ranges::all_of(host, [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  });
}

/// A machine has 16 GPUs in seven slices at most. All texts together have a limit, too: a thousand instances of one
/// certificate are kept.
bool can_be_shown(const std::vector<gpu_state>& all) {
  constexpr std::size_t most = 128, max_text = 16 * 1024;
  std::size_t text = 0;
  for (const auto& x : all) {
    if (std::max({x.place.size(), x.throttled.size(), x.problem.size()}) > gpu_state::longest_text)
      return false;
    text += x.place.size() + x.throttled.size() + x.problem.size();
  }
  return all.size() <= most && text <= max_text;
}

/// Empty: none.
std::string problem_of_facts(const hello& x) {
  if (x.machine.id.size() > machine_facts::longest_id || x.machine.cores > 65'536)
    return "instance " + x.name + " has no usable machine";
  if (x.role != role::worker && x.role != role::keeper && x.role != role::gateway)
    return "instance " + x.name + " has no role that is known";
  const auto is_printable = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (x.http.size() > hello::longest_url || !std::ranges::all_of(x.http, is_printable))
    return "instance " + x.name + " says no address where it answers requests";
  return x.role == role::gateway && x.slots != 1 ? "gateway " + x.name + " has more than one slot" : "";
}

} // namespace

BOOST_DESCRIBE_ENUM(instance_state, alive, leaving, lost)

std::string to_string(instance_state x) {
  return std::string(enum_name(x));
}

tl::expected<instance_table::membership, detailed_error> instance_table::join(const hello& x, time_point now,
                                                                              const std::string& holder) {
  auto refuse = [](parcae_error code, std::string why) { return tl::unexpected(detailed_error{code, std::move(why)}); };
  if (!good_name(x.name) || !(x.pool.empty() || good_name(x.pool)))
    return refuse(parcae_error::malformed_request,
                  "an instance's name, or its pool's, has 1 to 100 printable characters without spaces and slashes");
  if (x.protocol != protocol_version)
    return refuse(parcae_error::wrong_protocol, "instance " + x.name + " speaks version " + std::to_string(x.protocol) +
                                                    ", this manager is " + this_build() +
                                                    "; use the same build on both");
  if (x.slots < 1 || x.slots > 1024 || x.memory.bytes > max_slot_bytes || x.port == 0)
    return refuse(parcae_error::malformed_request, "instance " + x.name + " has no usable slots or data port");
  if (!can_be_dialled(x.host))
    return refuse(parcae_error::malformed_request, "instance " + x.name + " has no address that others can dial");
  if (!beyond_loopback_ && !is_loopback(x.host))
    return refuse(parcae_error::malformed_request,
                  "instance " + x.name +
                      " is not on this machine, or does not say so: give manager and nodes a --bundle");
  if (!good_processor(x.processor))
    return refuse(parcae_error::malformed_request,
                  "instance " + x.name + " does not say its processor in at most 512 printable characters");
  if (x.manager_life != 0 && x.manager_life != manager_life_)
    return refuse(parcae_error::lost_incarnation, "instance " + x.name + ", of another manager");
  if (x.manager != 0 && !managers_.contains(x.manager))
    return refuse(parcae_error::outdated_manager,
                  "instance " + x.name + " was welcomed by it; give this one the newest journal");
  if (x.warning.size() > hello::longest_warning)
    return refuse(parcae_error::malformed_request, "instance " + x.name + " has too long a warning");
  if (x.gpus.size() > x.slots || !can_be_shown(x.gpus))
    return refuse(parcae_error::malformed_request, "instance " + x.name + " has too much to say of its GPUs");
  if (const auto problem = problem_of_facts(x); !problem.empty())
    return refuse(parcae_error::malformed_request, problem);
  const key who{x.name, x.life};
  if (const auto known = records_.find(who); known != records_.end() && known->second.state != instance_state::lost) {
    // One that leaves by command does not know why.
    const bool same = known->second.facts.warning == x.warning ||
                      (known->second.state == instance_state::leaving && x.warning.empty());
    if (!same)
      known->second.facts.warning = x.warning;
    known->second.facts.gpus = x.gpus;
    return membership{.warns = !same}; // as each second: nothing is searched for it
  }
  if (std::find(replaced_.begin(), replaced_.end(), x.life) != replaced_.end())
    return refuse(parcae_error::lost_incarnation, "instance " + x.name);
  for (const auto& [who, record] : records_)
    if (who.first == x.name && record.state != instance_state::lost)
      return refuse(parcae_error::duplicate_name, x.name + "; start this one with another --name");
  const auto is_living = [&](const auto& y) {
    return y.second.holder == holder && y.second.state != instance_state::lost;
  };
  if (!holder.empty() && std::ranges::count_if(records_, is_living) >= static_cast<std::ptrdiff_t>(max_of_holder))
    return refuse(parcae_error::not_permitted, "instance " + x.name + ": its certificate has " +
                                                   std::to_string(max_of_holder) +
                                                   " instances here, the most that one may have; make another fleet");
  const bool returned = std::erase(lost_, who) > 0;
  std::erase_if(lost_, [&](const key& other) {
    if (other.first == x.name)
      remember_life(replaced_, other.second);
    return other.first == x.name;
  });
  records_[who] = {.facts = x, .holder = holder, .joined = now, .expires = {}, .lost_at = {}};
  return membership{.is_new = true, .returned = returned, .warns = !x.warning.empty()};
}

bool instance_table::leave(const key& who, time_point expires, const std::string& reason) {
  auto i = records_.find(who);
  if (i == records_.end() || i->second.state == instance_state::lost)
    return false;
  auto& x = i->second;
  if (x.expires && *x.expires - least_change < expires)
    return false;
  x.state = instance_state::leaving;
  x.expires = expires;
  if (!reason.empty())
    x.facts.warning = reason;
  return true;
}

bool instance_table::lose(const key& who, time_point now) {
  auto i = records_.find(who);
  if (i == records_.end() || i->second.state == instance_state::lost)
    return false;
  i->second.state = instance_state::lost;
  i->second.lost_at = now;
  remember_life(lost_, who);
  return true;
}

const instance_record* instance_table::tell_end(const std::string& name) {
  instance_record* living = nullptr;
  for (auto i = records_.lower_bound({name, {}}); i != records_.end() && i->first.first == name; ++i) {
    auto& x = i->second;
    if (x.state != instance_state::lost)
      living = &x;
    else if (!std::exchange(x.end_told, true))
      return &x;
  }
  return living;
}

void instance_table::expire(time_point now) {
  std::erase_if(records_, [&](const auto& x) { return x.second.lost_at && now - *x.second.lost_at >= lease_; });
}

const instance_record* instance_table::find(const key& who) const {
  auto i = records_.find(who);
  return i == records_.end() ? nullptr : &i->second;
}

} // namespace parcae
