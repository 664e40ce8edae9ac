#include "runtime/cli/commands.hpp"

#include "protocols/base/duration.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/values/job_keys.hpp"
#include "runtime/cli/manager.hpp"
#include "runtime/cli/watch.hpp"
#include "runtime/job/keys_json.hpp"
#include "runtime/process/client.hpp"
#include "runtime/process/state_folder.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/view/status_json.hpp"
#include "runtime/view/status_text.hpp"
#include "runtime/view/watch_events.hpp"

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>

namespace parcae {

namespace {

const CLI::Range job_number(1, 1'000'000'000);
constexpr std::chrono::hours longest_notice{24}; // of the manager's, too

void print(const std::string& x) {
  std::fputs(x.c_str(), stdout);
}

} // namespace

std::shared_ptr<manager_option> add_manager_option(CLI::App& command) {
  auto x = std::make_shared<manager_option>();
  command.add_option("--manager", x->where, "HOST:PORT of the manager; of several, with commas between")
      ->envname("PARCAE_MANAGER")
      ->capture_default_str();
  add_bundle_option(command, x->bundle);
  return x;
}

// Now, and not when it is to lead: the market file and the hook are there, and what is rented will find who leads.
void check_market(const renting_options& rents, const address& listens, const std::string& bundle, bool standby) {
  renting::check(rents);
  if (!rents.reached_at.empty())
    parse_access(rents.reached_at, bundle);
  else if (standby)
    throw std::invalid_argument("with --standby, --market wants --reached-at: the addresses of all managers that may "
                                "lead, as what is rented by one is to find the next one");
  else if (is_everywhere(listens.host))
    throw std::invalid_argument("nobody can dial " + listens.host +
                                ": say with --reached-at where what is rented "
                                "finds this manager");
}

void add_manager(CLI::App& app) {
  auto command = app.add_subcommand("manager", "run the manager, which instances and commands connect to\n"
                                               "Example: parcae manager --listen 127.0.0.1:4242");
  auto listen = std::make_shared<manager_option>();
  command->add_option("--listen", listen->where, "HOST:PORT, without --bundle on loopback; port 0: any free one")
      ->capture_default_str();
  add_bundle_option(*command, listen->bundle);
  auto state = std::make_shared<std::string>((default_state_folder() / "manager").string());
  command->add_option("--state", *state, "folder of the manager's journal: started again with it, its jobs go on")
      ->capture_default_str();
  auto store = std::make_shared<std::string>();
  auto standby = std::make_shared<bool>(false);
  auto* in_etcd = command->add_option("--store", *store,
                                      "etcd://HOST:PORT,HOST:PORT/NAME, etcds:// with TLS, instead of a folder: "
                                      "managers on several machines, of which one leads");
  auto authority = std::make_shared<std::string>(), identity = std::make_shared<std::string>();
  command
      ->add_option("--store-authority", *authority,
                   "PEM file with the authority of etcd's certificates (default: the system's)")
      ->needs(in_etcd);
  command->add_option("--store-identity", *identity, "PEM file with the certificate, and its key, that etcd asks for")
      ->needs(in_etcd);
  command->add_flag("--standby", *standby, "wait until no other manager leads, then take over")->needs(in_etcd);
  auto rents = std::make_shared<renting_options>();
  auto* market = command->add_option("--market", rents->market,
                                     "TOML file of pools that instances for jobs with a [budget] are rented of");
  auto* hook =
      command->add_option("--provision", rents->hook, "program, or http(s) URL, that is told what instances are to be");
  market->needs(hook);
  hook->needs(market);
  command
      ->add_option("--reached-at", rents->reached_at,
                   "HOST:PORT, of all managers that may lead with commas between, as rented nodes are to dial them "
                   "(default: where it listens)")
      ->needs(market);
  add_duration(*command, "--market-interval", rents->interval, "between decisions on what to rent (default 60s)");
  auto log = std::make_shared<std::string>("text");
  command->add_option("--log-format", *log, "text or json, one line per event on stderr")->capture_default_str();
  command->callback([=] {
    if (rents->interval < std::chrono::milliseconds(100) || rents->interval > std::chrono::hours(1))
      throw std::invalid_argument("--market-interval must be from 100ms to 1h");
    if (!rents->market.empty())
      check_market(*rents, listen->listening(), listen->bundle, *standby);
    journal_place kept{*state, std::nullopt, *standby};
    if (!store->empty()) {
      kept.store = parse_etcd_place(*store);
      kept.store->authority = *authority;
      kept.store->identity = *identity;
      if (!kept.store->tls && !(authority->empty() && identity->empty()))
        throw std::invalid_argument("--store-authority and --store-identity are for a --store that begins with "
                                    "etcds://");
    }
    run_manager(listen->listening(), listen->bundle, kept, *rents, parse_log_format(*log));
  });
}

void add_status(CLI::App& app) {
  auto command = app.add_subcommand("status", "show jobs and instances, one line each\n"
                                              "Example: parcae status 1 --json");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  auto json = std::make_shared<bool>(false), all = std::make_shared<bool>(false);
  command->add_option("JOB", *job, "only this job, with its details")->check(job_number);
  command->add_flag("--all", *all, "also jobs that have ended, and instances that are lost");
  command->add_flag("--json", *json, "all of it, as one line of JSON");
  command->callback([=] {
    manager_client client(manager->access());
    const auto x = client.status({.job = *job});
    if (const auto problem = client.certificate_problem(); !problem.empty())
      std::fprintf(stderr, "%s\n", problem.c_str());
    print(*json ? json_of(x) + "\n" : *job != 0 ? to_string(x, *all) : overview_of(x, *all));
  });
}

void add_logs(CLI::App& app) {
  auto command = app.add_subcommand("logs", "a job's events, and the last lines of the nodes that failed in it\n"
                                            "Example: parcae logs 1");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  command->add_option("JOB", *job, "default: the one that runs, else the last")->check(job_number);
  command->callback([=] {
    const auto x = manager_client(manager->access()).status({.job = *job});
    const auto wall = std::chrono::system_clock::now();
    const auto seconds = std::chrono::system_clock::to_time_t(wall);
    std::tm local{};
    localtime_r(&seconds, &local);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(wall.time_since_epoch()).count();
    print(log_of(x, {x.now_us, us + 1'000'000 * static_cast<std::int64_t>(local.tm_gmtoff)}));
  });
}

void add_job_keys(CLI::App& app) {
  auto command = app.add_subcommand("job-keys", "every key of a job file, and the formats of data\n"
                                                "Example: parcae job-keys | grep batch");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "all of it, as one line of JSON");
  command->callback([=] { print(*json ? job_keys_json() + "\n" : job_reference()); });
}

void add_watch(CLI::App& app) {
  auto command = app.add_subcommand("watch", "follow a job until it ends, live on a terminal, else line by line\n"
                                             "Example: parcae watch 1");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  command->add_option("JOB", *job, "default: the one that runs, else the next, else the last")->check(job_number);
  command->callback([=] { watch(manager->access(), *job); });
}

void add_preempt(CLI::App& app) {
  auto command = app.add_subcommand("preempt", "synthetic preemption: notice, then the node's process is killed\n"
                                               "Example: parcae preempt --any 2 --notice 30s");
  auto manager = add_manager_option(*command);
  auto x = std::make_shared<preempt_request>();
  auto notice = std::make_shared<std::chrono::milliseconds>(0);
  auto names = command->add_option("INSTANCE", x->names, "instances by name");
  auto any = command->add_option("--any", x->any, "or this many workers, chosen by --seed");
  any->excludes(names);
  command->add_option("--seed", x->seed, "for --any")->capture_default_str();
  add_duration(*command, "--notice", *notice, "time until it is killed, such as 30s (default: at once)");
  command->callback([=] {
    if (x->names.empty() && x->any == 0)
      throw std::invalid_argument("preempt needs names of instances, or --any N");
    if (*notice > longest_notice)
      throw std::invalid_argument("--notice is at most " + to_string(std::chrono::milliseconds(longest_notice)));
    x->notice_ms = static_cast<std::uint64_t>(notice->count());
    for (const auto& name : manager_client(manager->access()).preempt(*x))
      print(printable(name) + "\n");
  });
}

void add_cancel(CLI::App& app) {
  auto command = app.add_subcommand("cancel", "end a job, or take it from the queue\nExample: parcae cancel 1");
  auto manager = add_manager_option(*command);
  auto job = std::make_shared<std::uint64_t>(0);
  command->add_option("JOB", *job)->required()->check(job_number);
  command->callback([=] { manager_client(manager->access()).cancel(*job); });
}

} // namespace parcae
