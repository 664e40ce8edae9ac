#include "runtime/simulate/advise_command.hpp"

#include "planner/market/loss_curve.hpp"
#include "protocols/base/suggestion.hpp"
#include "runtime/job/job_file.hpp"
#include "runtime/market/market_file.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/simulate/market_input.hpp"
#include "runtime/simulate/simulate.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <boost/json.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

namespace parcae {

namespace {

using std::chrono::milliseconds;

struct advise_arguments {
  std::string what; ///< job file, or a profile
  std::string market, kind, rates, curve;
  std::vector<std::string> profiles; ///< FILE, or KIND=FILE
  std::optional<milliseconds> deadline, mean, wait;
  std::optional<double> total_usd, hourly_usd, samples, loss, link_bytes_per_ms, own_usd, rent_usd;
  milliseconds work{std::chrono::hours(24)}, tick{std::chrono::minutes(5)};
  std::uint32_t slots = 16;
  std::size_t plans = 12;
  std::string arrivals;
  bool is_fleet = false, as_json = false;
};

/// Rates and costs of the job on a kind.
struct known_kind {
  std::optional<profile> workload;
  std::vector<double> rates; ///< measured ones, of instances; else the profile's
};

class advice_reader {
public:
  explicit advice_reader(const advise_arguments& args) : args_(args), market_(read_market(args.market)) {
    read_rates();
    for (const auto& x : args.profiles)
      read_profile(x);
    if (!is_job() && !args.what.empty())
      read_profile(args.what);
    if (kinds_.empty())
      throw std::invalid_argument("advise needs the job's rates: --profile FILE, as `parcae profile JOB.toml` writes "
                                  "it, --profile KIND=FILE for each kind, or --rates FILE");
  }

  advice_setting read() {
    advice_setting result;
    result.job = std::filesystem::path(args_.what.empty() ? args_.rates : args_.what).filename().string();
    result.market = std::filesystem::path(args_.market).filename().string();
    auto& request = result.request;
    request.deadline_s = seconds(*args_.deadline);
    request.total_usd = args_.total_usd;
    for (const auto& kind : kinds_of_market())
      request.kinds.push_back(kind_of(kind));
    request.samples = samples(request);
    for (const auto& pool : market_.pools)
      if (pool.spot && pool.history.empty() &&
          std::ranges::find(request.kinds, pool.kind, &market::advised_kind::name) != request.kinds.end())
        result.assumed.push_back(pool.name);
    return result;
  }

private:
  bool is_job() const { return args_.what.ends_with(".toml"); }

  void read_rates() {
    if (!args_.rates.empty())
      for (auto& [kind, rates] :
           from_file(args_.rates, [](const std::string& text) { return market::parse_rates(text); }))
        kinds_[kind].rates = std::move(rates);
  }

  // FILE is for the kinds that have no other.
  void read_profile(const std::string& x) {
    const auto at = std::filesystem::exists(x) ? std::string::npos : x.find('=');
    const auto kind = at == std::string::npos ? std::string() : x.substr(0, at);
    kinds_[kind].workload = from_file(at == std::string::npos ? x : x.substr(at + 1),
                                      [](const std::string& text) { return parse_profile(text); });
  }

  // That are asked for, and of which something is known.
  std::vector<std::string> kinds_of_market() const {
    std::set<std::string> all;
    for (const auto& x : market_.pools)
      all.insert(x.kind);
    for (const auto& [kind, x] : kinds_)
      if (!kind.empty() && !all.contains(kind))
        throw std::invalid_argument("the kind " + kind + " is in no pool of " + args_.market + "; " +
                                    advice(kind, {all.begin(), all.end()}));
    if (!args_.kind.empty() && !all.contains(args_.kind))
      throw std::invalid_argument("--kind " + args_.kind + " is in no pool of " + args_.market + "; " +
                                  advice(args_.kind, {all.begin(), all.end()}));
    std::vector<std::string> result;
    for (const auto& x : all)
      if ((args_.kind.empty() || x == args_.kind) && (kinds_.contains(x) || kinds_.contains("")))
        result.push_back(x);
    if (result.empty())
      throw std::invalid_argument("nothing is known of the job on " + args_.kind + ": --profile " + args_.kind +
                                  "=FILE");
    return result;
  }

  market::advised_kind kind_of(const std::string& name) const {
    const auto& known = kinds_.contains(name) ? kinds_.at(name) : kinds_.at("");
    const double tick_s = seconds(args_.tick);
    const auto ticks = static_cast<std::size_t>(std::ceil(2 * seconds(*args_.deadline) / tick_s));
    market::advised_kind result{name, market_of(args_.market, market_, name, tick_s, ticks), {}};
    std::size_t most = 1; // together in a place
    for (const auto& x : result.market.places)
      most = std::max<std::size_t>(most, *std::ranges::max_element(x.spot) + x.on_demand);
    const auto figures = instances_of(args_.market, market_, name);
    if (known.workload) {
      const auto rates = rates_of(*known.workload, figures.slots, 1);
      result.options = options_of(*known.workload, args_.link_bytes_per_ms, figures.slots, result.market,
                                  std::min(most, rates.size() - 1));
    }
    if (!known.rates.empty()) {
      result.options.samples_per_s = known.rates;
      result.options.samples_per_s.resize(std::min(most + 1, known.rates.size()));
    }
    if (*std::ranges::max_element(result.options.samples_per_s) <= 0)
      throw std::runtime_error("the job does not run on " + std::to_string(most) + " " + name +
                               ", the most that a place of " + args_.market + " has");
    result.options.start_s = figures.start_s;
    result.options.hourly_usd = args_.hourly_usd;
    result.options.total_usd = args_.total_usd;
    return result;
  }

  double samples(const market::advice_request& request) const {
    if (is_job()) {
      const auto job = parse_job_file(args_.what);
      return (args_.loss ? steps_to_loss() : static_cast<double>(job.steps)) * job.global_batch;
    }
    if (args_.loss) {
      const auto found = kinds_.find("");
      if (found == kinds_.end() || !found->second.workload)
        throw std::invalid_argument("--loss needs a job file or a profile, whose batch it is");
      return steps_to_loss() * found->second.workload->global_batch;
    }
    if (args_.samples)
      return *args_.samples;
    const auto& kind = request.kinds.front();
    const auto slots = instances_of(args_.market, market_, kind.name).slots;
    const auto instances = (args_.slots + slots - 1) / slots;
    const auto& known = kinds_.contains(kind.name) ? kinds_.at(kind.name) : kinds_.at("");
    const auto rates = known.rates.empty() ? rates_of(*known.workload, slots, instances) : known.rates;
    if (rates.size() <= instances || rates[instances] <= 0)
      throw std::invalid_argument("no rate of " + std::to_string(instances) + " " + kind.name +
                                  " is known, of which --work is: give --samples, or another --gang");
    return seconds(args_.work) * rates[instances];
  }

  // From the beginning: neither batch nor losses depend on the instances.
  double steps_to_loss() const {
    const auto losses = from_file(args_.curve, [](const std::string& text) { return market::parse_losses(text); });
    const auto law = market::fitted_loss(losses);
    if (!law)
      throw std::runtime_error(args_.curve + ": from fewer than ten steps, or losses that do not fall, no more can be "
                                             "told");
    const auto steps = law->steps_to(*args_.loss);
    char text[160];
    if (!steps) {
      std::snprintf(text, sizeof text, ": the loss tends to %.4g, so --loss %.4g is not reached", law->floor,
                    *args_.loss);
      throw std::runtime_error(args_.curve + text);
    }
    return std::ceil(*steps);
  }

  const advise_arguments& args_;
  market_description market_;
  std::map<std::string, known_kind> kinds_; ///< ""; of those that have no other
};

// "20/day", in a second.
double rate_of(const std::string& text) {
  const std::pair<std::string_view, double> units[] = {{"s", 1}, {"m", 60}, {"h", 3'600}, {"day", 86'400}};
  const auto at = text.find('/');
  double number = 0;
  if (at != std::string::npos) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + at, number);
    for (const auto& [unit, length] : units)
      if (text.substr(at + 1) == unit && error == std::errc() && end == text.data() + at && number > 0 &&
          std::isfinite(number))
        return number / length;
  }
  throw std::invalid_argument("--arrivals \"" + text + "\" must be like 20/day, 3/h, 2/m or 1/s");
}

void advise_on_fleet(const advise_arguments& args) {
  if (args.arrivals.empty() || !args.mean || !args.own_usd || !args.rent_usd)
    throw std::invalid_argument("--fleet needs --arrivals, --mean, --own and --rent, such as --arrivals 20/day --mean "
                                "6h --own 1.20 --rent 3.06");
  if (args.mean->count() <= 0)
    throw std::invalid_argument("--mean must be above 0s");
  const market::team_load load{rate_of(args.arrivals), 1 / seconds(*args.mean), *args.own_usd, *args.rent_usd};
  constexpr double max_machines = 10'000;
  if (load.offered() > max_machines)
    throw std::invalid_argument("--arrivals and --mean are work for more than 10000 machines");
  const auto x = advise_fleet(load, seconds(args.wait.value_or(milliseconds(0))));
  std::printf("%s", args.as_json ? (boost::json::serialize(to_json(x)) + "\n").c_str() : to_table(x).c_str());
}

void advise_on_job(const advise_arguments& args) {
  if (args.market.empty())
    throw std::invalid_argument("advise needs --market FILE, or --fleet");
  if (args.what.empty() && args.rates.empty())
    throw CLI::RequiredError("JOB.toml, or a profile");
  if (!args.deadline || args.deadline->count() <= 0)
    throw std::invalid_argument("advise needs --deadline, such as --deadline 36h");
  if (args.loss.has_value() == args.curve.empty())
    throw std::invalid_argument("--loss and --curve need each other: parcae export JOB --curve losses.csv");
  if (args.tick.count() < 1000)
    throw std::invalid_argument("--tick must be at least 1s");
  const auto setting = advice_reader(args).read();
  const auto found = market::advise(setting.request);
  std::printf("%s", args.as_json ? (boost::json::serialize(to_json(setting, found)) + "\n").c_str()
                                 : to_table(setting, found, args.plans).c_str());
}

void add_job_options(CLI::App& command, advise_arguments& args) {
  command.add_option("JOB", args.what, "job file (.toml), or a profile (JSON) with --samples or --work");
  command.add_option("--market", args.market, "market file, TOML, with the pools' histories");
  add_duration(command, "--deadline", args.deadline, "until when the work must be done, such as 36h");
  command.add_option("--budget", args.total_usd, "US-dollars; how often a plan spends more is counted")
      ->check(CLI::PositiveNumber);
  command.add_option("--hourly", args.hourly_usd, "US-dollars an hour, at most, under the budget policy")
      ->check(CLI::PositiveNumber);
  command.add_option("--kind", args.kind, "only this kind of instances (default: all in the file)");
  command.add_option("--profile", args.profiles, "of a job file: a profile for all kinds, or KIND=FILE for one; again")
      ->allow_extra_args(false);
  command.add_option("--rates", args.rates, "measured rates instead: CSV with kind, instances, samples_per_s");
  command.add_option_function<std::string>(
      "--link",
      [&args](const std::string& text) {
        args.link_bytes_per_ms = parse_link_rate(text);
        if (!args.link_bytes_per_ms)
          throw CLI::ValidationError("--link", "\"" + text + "\" must be like 10Gb/s, 500Mb/s or 1.2GB/s");
      },
      "rate of an instance's link in each direction (default: the profile's, else 10Gb/s)");
  command.add_option("--loss", args.loss, "until this loss is reached, instead of the job's steps");
  command.add_option("--curve", args.curve, "of --loss: the job's losses so far, CSV of `parcae export JOB --curve`");
  command.add_option("--samples", args.samples, "of a profile: how many are trained")->check(CLI::PositiveNumber);
  add_duration(command, "--work", args.work, "of a profile: as many as --gang slots train in it (default 24h)");
  command.add_option("--gang", args.slots, "of a profile: slots")
      ->capture_default_str()
      ->check(CLI::Range(1u, max_slots));
  add_duration(command, "--tick", args.tick, "between decisions (default 5m)");
  command.add_option("--plans", args.plans, "how many the table has")->capture_default_str();
}

void add_fleet_options(CLI::App& command, advise_arguments& args) {
  command.add_flag("--fleet", args.is_fleet, "machines of a team: how many to keep, for jobs that come at random");
  command.add_option("--arrivals", args.arrivals, "of a fleet: jobs, such as 20/day");
  add_duration(command, "--mean", args.mean, "of a fleet: how long a job takes, such as 6h");
  command.add_option("--own", args.own_usd, "of a fleet: US-dollars an hour of a machine that is kept")
      ->check(CLI::PositiveNumber);
  command.add_option("--rent", args.rent_usd, "of a fleet: of one that is rented")->check(CLI::PositiveNumber);
  add_duration(command, "--wait", args.wait, "of a fleet: who would wait longer rents (default: nobody waits)");
}

} // namespace

fleet_advice advise_fleet(const market::team_load& load, double max_wait_s) {
  fleet_advice result{load, max_wait_s, market::best_machines(load, max_wait_s), {}};
  const auto first = result.best > 1 ? result.best - 1 : 1;
  for (unsigned s = first; result.best > 0 && s <= result.best + 1; ++s)
    result.choices.push_back(
        {s, max_wait_s > 0 ? market::some_wait(load, s, max_wait_s) : market::nobody_waits(load, s)});
  return result;
}

void add_advise(CLI::App& app) {
  const auto args = std::make_shared<advise_arguments>();
  auto* command = app.add_subcommand(
      "advise", "what to rent, what it will cost, whether the deadline holds\n"
                "Example: parcae advise JOB.toml --profile gpt.json --market market.toml --deadline 36h --budget 500");
  add_job_options(*command, *args);
  add_fleet_options(*command, *args);
  command->add_flag("--json", args->as_json, "one JSON object");
  command->callback([args] { args->is_fleet ? advise_on_fleet(*args) : advise_on_job(*args); });
}

} // namespace parcae
