// `parcae checkpoints` and `parcae export`: what is on disk, and what becomes of it.

#include "runtime/cli/checkpoints.hpp"

#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/checkpoint/huggingface.hpp"
#include "protocols/base/text.hpp"
#include "runtime/cli/command_options.hpp"
#include "runtime/process/client.hpp"
#include "runtime/process/state_folder.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/view/screen_text.hpp"
#include "runtime/view/status_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <thread>

namespace parcae {

namespace {

constexpr std::chrono::milliseconds poll_interval{200};
constexpr std::chrono::seconds checkpoint_limit{120};

/// A checkpoint on this machine, or one that the manager knows of.
struct stored {
  std::string name; ///< "gpt-1f/300@4"
  std::filesystem::path folder;
  std::string problem; ///< why it cannot be used
  std::uint64_t steps = 0, of = 0;
  std::string layers; ///< "all", "0-3"
  std::uint64_t bytes = 0;
  std::optional<std::filesystem::file_time_type> written;
};

std::string name_of(const std::filesystem::path& folder) {
  return (folder.parent_path().filename() / folder.filename()).string();
}

stored examine(const std::filesystem::path& folder) {
  stored x{name_of(folder), folder, {}, 0, 0, {}, 0, {}};
  std::error_code failure;
  for (std::filesystem::directory_iterator i(folder, failure), end; !failure && i != end; i.increment(failure)) {
    std::error_code ignored;
    if (const auto size = i->file_size(ignored); !ignored)
      x.bytes += size;
    if (const auto at = i->last_write_time(ignored); !ignored && (!x.written || at > *x.written))
      x.written = at;
  }
  try {
    checkpoint_reader reader({folder});
    x.steps = reader.manifest().at.steps;
    x.of = reader.manifest().specification.steps;
    const auto missing = reader.missing();
    x.layers = missing.empty() ? "all layers" : "layers " + list_of(reader.layers());
  } catch (const checkpoint_error& e) {
    x.problem = e.what();
  }
  return x;
}

bool has_manifest(const std::filesystem::path& folder) {
  std::error_code failure;
  for (std::filesystem::directory_iterator i(folder, failure), end; !failure && i != end; i.increment(failure))
    if (i->path().extension() == ".manifest")
      return true;
  return false;
}

/// Folders of keepers: the usual one, and those that the manager knows.
std::set<std::filesystem::path> state_folders(const status_reply* known) {
  std::set<std::filesystem::path> result{default_state_folder()};
  if (known)
    for (const auto& job : known->jobs)
      for (const auto& place : job.checkpoint_folders)
        result.insert(std::filesystem::path(place.folder).parent_path().parent_path());
  return result;
}

/// By job, the newest first.
std::vector<stored> stored_below(const std::filesystem::path& state) {
  std::vector<stored> result;
  std::error_code failure;
  for (std::filesystem::directory_iterator run(state, failure), end; !failure && run != end; run.increment(failure)) {
    std::error_code inner;
    for (std::filesystem::directory_iterator i(run->path(), inner); !inner && i != end; i.increment(inner))
      if (has_manifest(i->path()))
        result.push_back(examine(i->path()));
  }
  std::ranges::sort(result, [](const stored& a, const stored& b) {
    return std::pair(a.folder.parent_path(), b.steps) < std::pair(b.folder.parent_path(), a.steps);
  });
  return result;
}

std::optional<status_reply> known_by(const manager_option& manager) {
  try {
    return manager_client(manager.access(), std::chrono::seconds(2))
        .status({.changes_from = UINT64_MAX, .events_from = UINT64_MAX});
  } catch (const client_error&) {
    return std::nullopt;
  }
}

std::string text_of_bytes(std::uint64_t x) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(x);
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < std::size(units); ++unit)
    size /= 1024;
  return text_of_quantity(size) + " " + units[unit];
}

void list(const manager_option& manager, const std::string& state) {
  const auto known = known_by(manager);
  auto folders = state.empty() ? state_folders(known ? &*known : nullptr) : std::set{std::filesystem::absolute(state)};
  std::vector<stored> all;
  for (const auto& folder : folders)
    std::ranges::move(stored_below(folder), std::back_inserter(all));
  std::vector<std::array<std::string, 5>> rows;
  std::set<std::filesystem::path> seen;
  for (const auto& x : all) {
    seen.insert(x.folder);
    std::string age;
    if (x.written)
      age = text_of_duration(std::max(std::chrono::milliseconds(0),
                                      std::chrono::duration_cast<std::chrono::milliseconds>(
                                          std::filesystem::file_time_type::clock::now() - *x.written))) +
            " ago";
    rows.push_back({clean(x.name),
                    x.problem.empty() ? "step " + std::to_string(x.steps) + "/" + std::to_string(x.of) : "",
                    x.problem.empty() ? x.layers : clean(x.problem), text_of_bytes(x.bytes), age});
  }
  if (known && state.empty())
    for (const auto& job : known->jobs)
      for (const auto& place : job.checkpoint_folders)
        if (!seen.contains(place.folder) && !std::filesystem::exists(place.folder))
          rows.push_back({clean(name_of(place.folder)), "step " + std::to_string(job.checkpoint_steps),
                          "with keeper " + clean(place.keeper) + ", not on this machine", "", ""});
  std::array<std::size_t, 5> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], width_of(row[i]));
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += pad(row[i], widths[i]) + (i + 1 < row.size() ? "  " : "");
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
  std::string places;
  for (const auto& folder : folders)
    places += (places.empty() ? "" : ", ") + folder.string();
  if (rows.empty())
    std::printf("no checkpoints in %s\n", places.c_str());
  else
    std::printf(
        "in %s; `parcae submit --resume NAME` goes on from one, NAME without its last part from a job's newest\n",
        places.c_str());
}

// The folders of a checkpoint of the newest version that the keepers hold, those that this machine sees.
std::vector<std::filesystem::path> checkpoint_of(const manager_option& manager, std::uint64_t id) {
  manager_client client(manager.access());
  const status_request wanted{.job = id, .changes_from = UINT64_MAX, .events_from = UINT64_MAX};
  auto job = client.status(wanted).jobs.at(0);
  const auto steps = std::max(job.protected_steps, job.checkpoint_steps);
  const auto name = "job " + std::to_string(id);
  if (steps == 0)
    throw client_error(name + " has no state to export yet: no keeper holds a version of it");
  if (job.state == "running" && job.checkpoint_steps < steps)
    client.checkpoint(id);
  const auto limit = std::chrono::steady_clock::now() + checkpoint_limit;
  while (job.checkpoint_steps < steps) {
    job = client.status(wanted).jobs.at(0);
    if (job.checkpoint_steps >= steps)
      break;
    if (!job.checkpoint_problem.empty())
      throw client_error(name + ": " + job.checkpoint_problem);
    if (job.state != "running" || std::chrono::steady_clock::now() > limit)
      throw client_error(name + " is " + job.state + " and wrote no checkpoint of step " + std::to_string(steps) +
                         "; `parcae status " + std::to_string(id) + "` tells more");
    std::this_thread::sleep_for(poll_interval);
  }
  std::string places;
  std::vector<std::filesystem::path> seen;
  for (const auto& place : job.checkpoint_folders) {
    if (std::ranges::find(seen, std::filesystem::path(place.folder)) == seen.end() &&
        std::filesystem::exists(place.folder))
      seen.emplace_back(place.folder);
    places += (places.empty() ? "" : ", ") + place.folder + " (keeper " + place.keeper + ")";
  }
  if (!seen.empty())
    return seen;
  if (places.empty())
    throw client_error(name + " has written no checkpoint since it was started from one; try again later");
  throw client_error("the checkpoint of " + name + " is not on this machine but at " + places +
                     "; run `parcae export FOLDER` there");
}

/// What is exported, and how.
struct export_options {
  manager_option manager;
  std::string what;
  std::string output;
  std::string layout = "pytorch";
  std::string curve;
};

void write_curve(const export_options& options, std::uint64_t job) {
  const auto x = manager_client(options.manager.access())
                     .status({.job = job, .changes_from = UINT64_MAX, .events_from = UINT64_MAX});
  std::ofstream file(options.curve);
  file << curve_of(x.jobs.at(0));
  file.close();
  if (!file)
    throw std::runtime_error("cannot write " + options.curve);
  std::fprintf(stderr, "%s: %s\n", options.curve.c_str(), counted(x.jobs[0].losses.size(), "point").c_str());
}

void export_job(const export_options& options) {
  const auto& what = options.what;
  const auto number = !what.empty() && what.find_first_not_of("0123456789") == what.npos && what.size() < 19;
  if (options.output.empty() && options.curve.empty())
    throw std::invalid_argument("export needs --output FILE, or --curve FILE.csv");
  if (!options.curve.empty() && !number)
    throw std::invalid_argument("--curve needs a job's number: the manager has the losses, a checkpoint has not");
  if (options.output == options.curve)
    throw std::invalid_argument("--output and --curve are the same file, " + options.curve);
  if (!options.curve.empty())
    write_curve(options, std::stoull(what));
  if (options.output.empty())
    return;
  checkpoint_reader from(number ? checkpoint_of(options.manager, std::stoull(what))
                                : std::vector{find_by_name(what, options.manager)});
  if (options.layout == "huggingface")
    export_for_huggingface(from, options.output);
  else
    export_parameters(from, options.output);
  std::fprintf(stderr, "%s: parameters of step %llu\n", options.output.c_str(),
               static_cast<unsigned long long>(from.manifest().at.steps));
}

} // namespace

std::filesystem::path find_by_name(const std::string& name, const manager_option& manager) {
  const std::filesystem::path path = name;
  if (path.is_absolute() || std::filesystem::exists(path))
    return find_checkpoint(path);
  const auto known = known_by(manager);
  std::string places;
  for (const auto& state : state_folders(known ? &*known : nullptr)) {
    places += (places.empty() ? "" : ", ") + state.string();
    if (std::filesystem::exists(state / path))
      return find_checkpoint(state / path);
  }
  throw checkpoint_error("no checkpoint at " + name + ": there is no such folder in " +
                         std::filesystem::current_path().string() + ", and none of that name in " + places +
                         "; `parcae checkpoints` lists what there is; of a keeper with another --state give the path");
}

std::optional<std::uint64_t> writer_of(const std::filesystem::path& checkpoint, const manager_option& manager) {
  if (const auto known = known_by(manager))
    for (const auto& job : known->jobs)
      for (const auto& place : job.checkpoint_folders)
        if (job.state == "running" && std::filesystem::path(place.folder).parent_path() == checkpoint.parent_path())
          return job.id;
  return std::nullopt;
}

void add_checkpoints(CLI::App& app) {
  auto command = app.add_subcommand("checkpoints", "what `parcae submit --resume` can go on from\n"
                                                   "Example: parcae checkpoints");
  auto manager = add_manager_option(*command);
  auto state = std::make_shared<std::string>();
  command->add_option("--state", *state, "a keeper's folder (default: the usual one, and those the manager knows of)")
      ->check(CLI::ExistingDirectory);
  command->callback([=] { list(*manager, *state); });
}

void add_export(CLI::App& app) {
  auto command = app.add_subcommand("export", "write a job's parameters as PyTorch users load them, or its losses\n"
                                              "Example: parcae export 1 --output gpt.safetensors");
  auto x = add_options(*command, export_job);
  command->add_option("JOB", x->what, "a job's number, or the name or folder of a checkpoint (no manager is needed)")
      ->required()
      ->check(local_path);
  command->add_option("--output", x->output, "the safetensors file to write; for huggingface a folder")
      ->check(in_a_folder);
  command
      ->add_option("--layout", x->layout,
                   "pytorch, or (gpt) huggingface: model.safetensors and config.json as transformers loads them")
      ->check(CLI::IsMember({"pytorch", "huggingface"}))
      ->capture_default_str();
  command->add_option("--curve", x->curve, "the losses so far as CSV: step,loss,validation_loss")->check(in_a_folder);
}

} // namespace parcae
