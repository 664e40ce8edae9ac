// parcae-node: one instance. See runtime/node/node.hpp.

#include "gpu/plugin/plugins.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/choreography/build.hpp"
#include "runtime/cloud/cloud.hpp"
#include "runtime/node/last_words.hpp"
#include "runtime/node/node.hpp"
#include "runtime/process/standard_streams.hpp"
#include "runtime/process/usage.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <map>

extern const char* const parcae_revision; // see revision.cmake

namespace {

struct texts {
  std::string manager = "127.0.0.1:4242";
  std::string bundle;
  std::string listen;
  std::string advertise;
  std::string role = "worker";
  std::string device = "cpu";
  std::string http;
  std::string log = "text";
  std::string cloud = "auto";
  std::vector<std::string> data;
  std::vector<std::string> faults;
  std::vector<std::string> plugins;
  std::vector<std::string> describe; ///< a model's name, and its arguments
};

std::string device_problem(const std::string& x) {
  try {
    parcae::parse_device_choice(x);
    return {};
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
}

// Throws std::invalid_argument for what CLI11 does not check.
parcae::node_options options_of(parcae::node_options options, const texts& x) {
  options.manager = parcae::parse_access(x.manager, x.bundle);
  if (!x.listen.empty())
    options.listen = parcae::parse_place(x.listen, x.bundle);
  if (!x.advertise.empty())
    options.advertise = parcae::parse_place(x.advertise, x.bundle);
  if (parcae::is_everywhere(options.advertise.host))
    throw std::invalid_argument("nobody can dial " + options.advertise.host + ": --advertise one address");
  options.role = *parcae::parse_role(x.role);
  if ((options.role == parcae::role::gateway) != !x.http.empty())
    throw std::invalid_argument(x.http.empty() ? "a gateway needs --http HOST:PORT, where it answers clients"
                                               : "--http is for --role gateway");
  if (!x.http.empty())
    options.http = parcae::parse_address(x.http);
  options.device = parcae::parse_device_choice(x.device);
  options.log = parcae::parse_log_format(x.log);
  options.cloud.of = *parcae::parse_cloud(x.cloud);
  if (const auto problem = parcae::problem_of(options.cloud); !problem.empty())
    throw std::invalid_argument(problem);
  options.data.assign(x.data.begin(), x.data.end());
  options.plugins.assign(x.plugins.begin(), x.plugins.end());
  for (const auto& fault : x.faults)
    options.faults.push_back(parcae::parse_fault(fault));
  return options;
}

void add_device_options(CLI::App& app, texts& x, parcae::node_options& options) {
  app.add_option("--device", x.device,
                 "what computes: cpu, cuda (all GPUs), cuda:1,3 or cuda:GPU-UUID (these), or auto")
      ->check(device_problem)
      ->capture_default_str();
  app.add_flag("--trust-network", options.trusts_network,
               "let NCCL move tensors between hosts: unlike all else it neither authenticates nor encrypts");
  app.add_option("--slots", options.slots, "devices of this instance (default: 1, or the GPUs that --device names)")
      ->check(CLI::Range(1, 64));
  app.add_option("--slot-memory", options.slot_bytes,
                 "bytes that training may take of a slot, such as 8GiB (default: the machine's memory in equal parts)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber);
}

void add_gateway_options(CLI::App& app, texts& x, parcae::node_options& options) {
  app.add_option("--http", x.http, "HOST:PORT where a gateway answers clients of the model that is served");
  auto* const certificate = app.add_option("--http-certificate", options.http_certificate,
                                           "PEM file with the gateway's chain of certificates: then it speaks HTTPS")
                                ->check(CLI::ExistingFile);
  auto* const key = app.add_option("--http-key", options.http_key, "PEM file with the key of that certificate")
                        ->check(CLI::ExistingFile);
  certificate->needs(key);
  key->needs(certificate);
  app.add_option("--api-keys", options.api_keys,
                 "file with the keys that clients show, one a line (default: on loopback none)")
      ->check(CLI::ExistingFile);
}

void add_node_options(CLI::App& app, texts& x, parcae::node_options& options) {
  app.add_option("--manager", x.manager, "HOST:PORT of the manager; of several, with commas between")
      ->envname("PARCAE_MANAGER")
      ->capture_default_str();
  parcae::add_bundle_option(app, x.bundle);
  app.add_option("--listen", x.listen,
                 "HOST[:PORT] for data of other nodes; without --bundle on loopback (default: the address from which "
                 "this machine reaches the manager, any free port)");
  app.add_option("--advertise", x.advertise, "HOST[:PORT] as other nodes dial it (default: as it listens)");
  app.add_option(
      "--name", options.name,
      "unique name (default: host name and process id); with --bundle the certificate's, or with a fleet's NAME-MORE");
  app.add_option("--pool", options.pool, "of the manager's market that this instance was rented of (default: of none)");
  app.add_option("--role", x.role)->check(CLI::IsMember({"worker", "keeper", "gateway"}))->capture_default_str();
  add_gateway_options(app, x, options);
  add_device_options(app, x, options);
  parcae::add_duration(app, "--grace", options.grace, "longest time from SIGTERM to the end (default 30s)");
  app.add_option("--cloud", x.cloud, "whose notices count besides SIGTERM: auto, aws, gcp, azure or none")
      ->envname("PARCAE_CLOUD")
      ->check(CLI::IsMember({"auto", "aws", "gcp", "azure", "none"}))
      ->take_last()
      ->capture_default_str();
  app.add_option("--metadata", options.cloud.server, "ADDRESS:PORT of the cloud's metadata server, or of a proxy to it")
      ->envname("PARCAE_METADATA")
      ->capture_default_str();
  app.add_option("--state", options.state,
                 "a keeper's folder for checkpoints (default: " + parcae::default_state_folder().string() + ")");
  app.add_option("--plugin", x.plugins, "a library with layers of yours (repeatable, at most 4)")
      ->allow_extra_args(false)
      ->expected(0, 4);
  app.add_option("--describe", x.describe,
                 "NAME [KEY=VALUE…]: print what a job of that model of the --plugin names as model.path, and end");
  app.add_option(
      "--data", x.data,
      "a folder, or s3:// or https:// prefix, that jobs may read below, and a keeper write checkpoints below "
      "(repeatable; default: whatever this user may)");
  app.add_option("--log-format", x.log, "text or json, one line per event on stderr")->capture_default_str();
  app.add_option("--fault", x.faults, "PHASE@STEP[:INDEX]=kill|stop|throw: fail there, for tests");
  app.add_flag("--own-machine", options.own_machine,
               "plan with this node as if it shared its cores with no other: for clusters tried out on one machine");
  parcae::add_duration(app, "--naps", options.naps, "sleep this long before some of the passes, for profiles");
  parcae::add_link_rate(
      app, "--link", options.link_bytes_per_s,
      "send data at most so fast on each connection, such as 1Gb/s: as if over such a link, for profiles");
  app.add_option("--loader-log", options.loader_log, "append one line per micro-batch loaded");
}

// What a job of a plug-in's model names.
std::string description_of(const texts& x) {
  if (x.plugins.size() != 1)
    throw std::invalid_argument("--describe wants one --plugin: that which has the model");
  std::map<std::string, std::string> arguments;
  for (std::size_t i = 1; i < x.describe.size(); ++i) {
    const auto equals = x.describe[i].find('=');
    if (equals == 0 || equals == std::string::npos)
      throw std::invalid_argument("behind the model's name --describe takes KEY=VALUE, not " + x.describe[i]);
    arguments[x.describe[i].substr(0, equals)] = x.describe[i].substr(equals + 1);
  }
  return parcae::describe_plugin_model(parcae::open_plugin(x.plugins.front()), x.describe.front(), arguments);
}

} // namespace

int main(int argc, char** argv) {
  parcae::hold_standard_streams();
  parcae::name_this_build(PARCAE_VERSION, parcae_revision);
  CLI::App app{"An instance of a Parcae cluster: its slots train or serve, or (--role keeper) it holds snapshots,\n"
               "or (--role gateway) it answers clients of a model that is served.\n"
               "Example: parcae-node --manager 127.0.0.1:4242 --name a",
               "parcae-node"};
  app.failure_message(parcae::usage_error);
  texts x;
  parcae::node_options options;
  add_node_options(app, x, options);
  int last_words = -1;
  app.add_option("--last-words", last_words)->group(""); // only the guardian of a failed node uses it
  try {
    app.set_version_flag("--version", "parcae-node " + parcae::this_build());
    app.parse(argc, argv);
    if (!x.describe.empty()) {
      std::printf("%s\n", description_of(x).c_str());
      return 0;
    }
    options = options_of(options, x);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "parcae-node: %s\n", parcae::printable(e.what()).c_str());
    return 2;
  } catch (const std::runtime_error& e) {
    std::fprintf(stderr, "parcae-node: %s\n", parcae::printable(e.what()).c_str());
    return 1;
  }
  try {
    if (last_words >= 0)
      return parcae::deliver_last_words(parcae::black_box(last_words), options.name, options.manager) ? 0 : 1;
    return parcae::run_node(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "parcae-node: %s\n", parcae::printable(e.what()).c_str());
    return 1;
  }
}
