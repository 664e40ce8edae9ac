#include "protocols/trust/authority.hpp"
#include "runtime/cli/commands.hpp"
#include "runtime/process/usage.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>

namespace parcae {

namespace {

using std::chrono::days;

constexpr days authority_validity{3'650};

struct init_options {
  std::string folder;
  std::string add, role, fleet, revoke;
  int validity_days = 365;
};

void print_line(const std::string& x) {
  std::fputs((x + "\n").c_str(), stdout);
}

std::string use_of(membership role, const std::string& name) {
  switch (role) {
  case membership::manager:
    return "for the manager";
  case membership::node:
    return "for the worker " + name;
  case membership::keeper:
    return "for the keeper " + name;
  case membership::client:
    return "for a client, who submits, and cancels what is its own";
  case membership::operator_:
    return "for an operator, who may cancel and preempt whatever there is";
  }
  return {};
}

void add_bundle(const init_options& x, membership role, const std::string& name, bool fleet = false) {
  const auto path = issue_bundle(x.folder, role, name, days(x.validity_days), fleet);
  print_line(
      path.string() + ": " +
      (fleet ? "for any number of workers, each under a name that begins with " + name + "-" : use_of(role, name)) +
      "; " + std::to_string(x.validity_days) + " days");
}

void init(const init_options& x) {
  if (x.add.empty() != x.role.empty())
    throw std::invalid_argument("--add NAME and --role ROLE go together");
  if (!x.add.empty())
    return add_bundle(x, *parse_membership(x.role), x.add);
  if (!x.fleet.empty())
    return add_bundle(x, membership::node, x.fleet, true);
  if (!x.revoke.empty()) {
    const auto revoked = revoke_bundles(x.folder, x.revoke);
    print_line(x.folder + "/revoked.pem: " + std::to_string(revoked) + " more; put it beside the bundles, and SIGHUP " +
               "the manager and the nodes");
    return;
  }
  make_authority(x.folder, authority_validity);
  print_line(x.folder + "/authority.key: whoever has it owns the cluster; keep it off its machines");
  for (const auto role : all_memberships)
    add_bundle(x, role, std::string(to_string(role)));
}

} // namespace

void add_init(CLI::App& app) {
  auto command = app.add_subcommand("init", "make the certificates of a cluster: an authority, and a bundle per role\n"
                                            "Example: parcae init certificates --add spot-a --role node");
  auto x = std::make_shared<init_options>();
  command->add_option("DIR", x->folder, "folder of the authority")->required()->check(local_path);
  auto add = command->add_option("--add", x->add, "one more bundle, or a new one for that name: DIR/NAME.pem");
  command->add_option("--role", x->role, "what the process with that bundle may be")
      ->check(CLI::IsMember({"manager", "node", "keeper", "client", "operator"}));
  command->add_option("--days", x->validity_days, "how long bundles are valid")
      ->check(CLI::Range(1, 3650))
      ->capture_default_str();
  auto fleet = command->add_option("--fleet", x->fleet,
                                   "one bundle for any number of workers, each with a --name NAME-MORE of its own");
  fleet->excludes(add);
  command->add_option("--revoke", x->revoke, "all bundles of that name, for ever")->excludes(add)->excludes(fleet);
  command->callback([x] { init(*x); });
}

} // namespace parcae
