// `parcae checkpoints` and `parcae export`: what was written, and what becomes of it.

#include "runtime/cli/checkpoints.hpp"

#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/checkpoint/huggingface.hpp"
#include "gpu/checkpoint/losses.hpp"
#include "protocols/base/text.hpp"
#include "protocols/store/store.hpp"
#include "runtime/cli/command_options.hpp"
#include "runtime/cli/stored_checkpoints.hpp"
#include "runtime/process/client.hpp"
#include "runtime/process/state_folder.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/view/screen_text.hpp"
#include "runtime/view/status_text.hpp"

#include <boost/json.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <thread>

namespace parcae {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr std::chrono::seconds checkpoint_limit{120};

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

using row = std::array<std::string, 5>;

row row_of(const listed_checkpoint& x) {
  std::string age, size, steps;
  if (x.wall_us != 0)
    age =
        text_of_duration(std::max(milliseconds(0), duration_cast<milliseconds>(system_clock::now().time_since_epoch() -
                                                                               std::chrono::microseconds(x.wall_us)))) +
        " ago";
  if (x.bytes > 0)
    size = text_of_bytes(x.bytes);
  if (x.steps > 0)
    steps = "step " + std::to_string(x.steps) + (x.of > 0 ? "/" + std::to_string(x.of) : "");
  return {clean(x.name), steps, x.problem.empty() ? x.layers : clean(x.problem), size, age};
}

listed_checkpoint listed(const stored& x) {
  const auto us = duration_cast<std::chrono::microseconds>(x.written.time_since_epoch()).count();
  const bool good = x.problem.empty();
  return {x.name, x.place, x.problem, good ? x.steps : 0, good ? x.of : 0, x.layers, x.bytes, us};
}

void print(const std::vector<row>& rows) {
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
}

void list(const manager_option& manager, const std::string& asked, bool in_json) {
  const auto all = list_checkpoints(manager, asked);
  if (in_json) {
    std::printf("%s\n", json_of(all).c_str());
    return;
  }
  for (const auto& x : all.problems)
    std::fprintf(stderr, "%s\n", clean(x).c_str());
  std::vector<row> rows;
  std::string text;
  for (const auto& x : all.checkpoints)
    rows.push_back(row_of(x));
  for (const auto& x : all.places)
    text += (text.empty() ? "" : ", ") + x;
  print(rows);
  if (rows.empty())
    std::printf("no checkpoints in %s\n", text.c_str());
  else
    std::printf("in %s\n`parcae submit --resume %s` goes on from one of them; JOB of a name JOB/STEP is its newest\n",
                text.c_str(), asked.empty() ? "NAME" : (text + "/NAME").c_str());
}

// --- removing

struct checkpoints_options {
  manager_option manager;
  std::string place;
  std::vector<std::string> remove;
  std::size_t keep = 0; ///< 0: all
  bool json = false;
};

void remove(const checkpoints_options& options) {
  const auto known = [&] {
    try {
      return manager_client(options.manager.access()).status();
    } catch (const client_error& e) {
      throw client_error(std::string("which checkpoints jobs still need only their manager knows: ") + e.what());
    }
  }();
  std::vector<stored> all;
  for (const auto& name : options.place.empty() ? known_places(&known) : std::set{options.place})
    std::ranges::move(stored_below(open_store(name)), std::back_inserter(all));
  const auto which = to_be_removed(all, options.remove, options.keep, known);
  std::uint64_t bytes = 0;
  for (const auto& x : which) {
    remove_stored(x);
    bytes += x.bytes;
    std::printf("removed %s\n", clean(x.name).c_str());
  }
  std::printf("%s removed, %s; %zu left\n", counted(which.size(), "checkpoint").c_str(), text_of_bytes(bytes).c_str(),
              all.size() - which.size());
}

void list_or_remove(const checkpoints_options& options) {
  if (options.remove.empty() && options.keep == 0)
    list(options.manager, options.place, options.json);
  else
    remove(options);
}

/// Whether this machine can look at it.
bool is_seen(const std::string& place) {
  try {
    return has_manifest(*open_store(place));
  } catch (const store_error&) {
    return false;
  }
}

// The folders of a checkpoint of the newest version that the keepers hold, those that this machine sees.
std::vector<store_ptr> checkpoint_of(const manager_option& manager, std::uint64_t id, bool asks) {
  manager_client client(manager.access());
  const status_request wanted{.job = id, .changes_from = UINT64_MAX, .events_from = UINT64_MAX};
  auto job = client.status(wanted).jobs.at(0);
  const auto steps = asks ? std::max(job.protected_steps, job.checkpoint_steps) : job.checkpoint_steps;
  const auto name = "job " + std::to_string(id);
  if (steps == 0)
    throw checkpoint_error(name + " has no state to export yet: " +
                           (asks ? "no keeper holds a version of it" : "there is no checkpoint of it"));
  if (job.state == "running" && job.checkpoint_steps < steps)
    client.checkpoint(id);
  const auto limit = std::chrono::steady_clock::now() + checkpoint_limit;
  const auto before = job.checkpoint_problem; // of an earlier one
  while (job.checkpoint_steps < steps) {
    job = client.status(wanted).jobs.at(0);
    if (job.checkpoint_steps >= steps)
      break;
    if (!job.checkpoint_problem.empty() && job.checkpoint_problem != before)
      throw checkpoint_error(name + ": " + job.checkpoint_problem);
    if (job.state != "running" || std::chrono::steady_clock::now() > limit)
      throw checkpoint_error(name + " is " + job.state + " and wrote no checkpoint of step " + std::to_string(steps) +
                             (before.empty() ? "" : "; " + before) + "; `parcae status " + std::to_string(id) +
                             "` tells more");
    std::this_thread::sleep_for(ask_interval);
  }
  std::string places;
  std::vector<store_ptr> seen;
  for (const auto& place : job.checkpoint_folders) {
    if (std::ranges::find(seen, place.folder, [](const auto& x) { return x->place(); }) == seen.end() &&
        is_seen(place.folder))
      seen.push_back(open_store(place.folder));
    places += (places.empty() ? "" : ", ") + place.folder + " (keeper " + place.keeper + ")";
  }
  if (!seen.empty())
    return seen;
  if (places.empty())
    throw checkpoint_error(name + " has written no checkpoint since it was started from one; try again later");
  throw checkpoint_error("the checkpoint of " + name + " cannot be seen from this machine: it is at " + places +
                         "; run `parcae export FOLDER` there");
}

/// The step of its newest checkpoint.
std::uint64_t newest_of(const manager_option& manager, std::uint64_t job) {
  return manager_client(manager.access())
      .status({.job = job, .changes_from = UINT64_MAX, .events_from = UINT64_MAX})
      .jobs.at(0)
      .checkpoint_steps;
}

/// What is exported, and how.
struct export_options {
  manager_option manager;
  std::string what;
  std::string output;
  std::string layout = "pytorch";
  std::string curve;
  bool says_so = true;
  bool asks = true; ///< for a checkpoint of the newest version, if the job runs
};

/// A line for each step that is known, by the steps that its version has.
class curve_file {
public:
  explicit curve_file(const std::string& path) : path_(path), file_(path) {
    file_ << "step,loss,validation_loss,gradient_norm,learning_rate,samples,time_ms\n";
  }

  void add(const loss_block& x) {
    for (std::size_t i = 0; i < x.all.size(); ++i) {
      const auto& y = x.all[i];
      if (!y.is_known())
        continue;
      const auto steps = x.first + i + 1;
      file_ << fmt::format("{},{},{},{},{},{},{}\n", steps, y.loss,
                           y.validation_loss ? fmt::format("{}", *y.validation_loss) : "", y.gradient_norm,
                           y.learning_rate, steps * x.samples, y.at_ms);
      ++lines_;
    }
  }

  void close() {
    file_.close();
    if (!file_)
      throw std::runtime_error("cannot write " + path_);
    std::fprintf(stderr, "%s: %s\n", path_.c_str(), counted(lines_, "step").c_str());
  }

private:
  const std::string path_;
  std::ofstream file_;
  std::size_t lines_ = 0;
};

/// As the manager has them.
void write_curve(const export_options& options, std::uint64_t job) {
  manager_client client(options.manager.access());
  curve_file file(options.curve);
  for (auto block = client.losses(job, 0); !block.all.empty(); block = client.losses(job, block.end()))
    file.add(block);
  file.close();
}

/// As they are with a checkpoint.
void write_curve(const export_options& options, const object_store& checkpoint) {
  const auto run = run_above(checkpoint.place());
  const auto steps = checkpoint_reader({open_store(checkpoint.place())}).manifest().at.steps;
  const auto found = run ? read_losses(*run, steps) : stored_losses();
  if (!found.problem.empty())
    std::fprintf(stderr, "%s\n", found.problem.c_str());
  if (found.known.first_known() == found.known.steps())
    throw checkpoint_error("no losses are with " + checkpoint.place());
  curve_file file(options.curve);
  for (std::uint64_t from = 0; from < found.known.steps();) {
    auto block = found.known.part(from);
    block.samples = found.samples;
    file.add(block);
    from = block.end();
  }
  file.close();
}

void write_parameters(const export_options& options, const std::vector<store_ptr>& places) {
  checkpoint_reader from(places);
  if (options.layout == "huggingface")
    export_for_huggingface(from, options.output);
  else
    export_parameters(from, options.output);
  if (options.says_so)
    std::fprintf(stderr, "%s: parameters of step %llu\n", options.output.c_str(),
                 static_cast<unsigned long long>(from.manifest().at.steps));
}

/// The job goes on meanwhile, and deletes what is old: then there is a newer one.
void write_newest(const export_options& options, std::uint64_t job) {
  constexpr int attempts = 10;
  for (int left = attempts;; --left) {
    const auto before = newest_of(options.manager, job);
    const auto is_gone = [&] { return left > 1 && newest_of(options.manager, job) > before; };
    try {
      return write_parameters(options, checkpoint_of(options.manager, job, options.asks));
    } catch (const checkpoint_error&) {
      if (!is_gone())
        throw;
    } catch (const client_error&) {
      if (!is_gone())
        throw;
    }
  }
}

void export_job(const export_options& options) {
  const auto& what = options.what;
  const auto number = !what.empty() && what.find_first_not_of("0123456789") == what.npos && what.size() < 19;
  if (options.output.empty() && options.curve.empty())
    throw std::invalid_argument("export needs --output FILE, or --curve FILE.csv");
  if (options.output == options.curve)
    throw std::invalid_argument("--output and --curve are the same file, " + options.curve);
  const auto stored = number ? nullptr : find_by_name(what, options.manager, {});
  if (!options.curve.empty())
    number ? write_curve(options, std::stoull(what)) : write_curve(options, *stored);
  if (options.output.empty())
    return;
  number ? write_newest(options, std::stoull(what)) : write_parameters(options, {stored});
}

} // namespace

checkpoint_listing list_checkpoints(const manager_option& manager, const std::string& asked) {
  const auto known = asked.empty() ? known_by(manager) : std::nullopt;
  checkpoint_listing result;
  std::set<std::string> seen;
  for (const auto& name : asked.empty() ? known_places(known ? &*known : nullptr) : std::set{asked})
    try {
      const auto place = open_store(name);
      result.places.push_back(place->place());
      for (const auto& x : stored_below(place)) {
        seen.insert(x.place);
        result.checkpoints.push_back(listed(x));
      }
    } catch (const store_error& e) {
      if (!asked.empty())
        throw;
      result.problems.emplace_back(e.what());
    }
  if (known)
    for (const auto& job : known->jobs)
      for (const auto& place : job.checkpoint_folders)
        if (!seen.contains(place.folder) && (is_url(place.folder) || !std::filesystem::exists(place.folder)))
          result.checkpoints.push_back({name_of(place.folder), place.folder,
                                        is_url(place.folder) ? "at " + place.folder + ", not seen from here"
                                                             : "with keeper " + place.keeper + ", not on this machine",
                                        job.checkpoint_steps, 0, "", 0, 0});
  return result;
}

std::string json_of(const checkpoint_listing& x) {
  namespace json = boost::json;
  json::array all;
  for (const auto& y : x.checkpoints) {
    json::object one;
    for_each_field(y, [&](const char* name, const auto& field) { one[name] = json::value_from(field); });
    all.push_back(std::move(one));
  }
  return json::serialize(json::object{{"checkpoints", std::move(all)},
                                      {"places", json::value_from(x.places)},
                                      {"problems", json::value_from(x.problems)}});
}

void export_newest(const manager_option& manager, std::uint64_t job, const std::filesystem::path& output, bool asks) {
  export_options options;
  options.manager = manager;
  options.output = output;
  options.says_so = false;
  options.asks = asks;
  write_newest(options, job);
}

store_ptr find_by_name(const std::string& name, const manager_option& manager, const checkpoint_specification& where) {
  const store_options options{where.endpoint, where.region};
  const std::filesystem::path path = name;
  if (is_url(name) || path.is_absolute() || std::filesystem::exists(path))
    return find_checkpoint(open_store(name, options));
  auto places = std::vector<std::string>();
  if (!where.to.empty())
    places.push_back(where.to);
  const auto known = known_by(manager);
  std::ranges::copy(known_places(known ? &*known : nullptr), std::back_inserter(places));
  std::string text, problem;
  for (const auto& place : places)
    try {
      text += (text.empty() ? "" : ", ") + place;
      const auto there = open_store(place, options)->below(name);
      if (const auto list = there->list(); !list.objects.empty() || !list.folders.empty())
        return find_checkpoint(there);
    } catch (const store_error& e) {
      problem = std::string("; ") + e.what();
    }
  throw checkpoint_error("no checkpoint at " + name + ": there is no such folder in " +
                         std::filesystem::current_path().string() + ", and none of that name in " + text + problem +
                         "; `parcae checkpoints` lists what there is; of a keeper with another --state give the path");
}

std::optional<std::uint64_t> writer_of(const std::string& checkpoint, const manager_option& manager) {
  const auto run = std::filesystem::path(checkpoint).parent_path();
  if (const auto known = known_by(manager))
    for (const auto& job : known->jobs)
      for (const auto& place : job.checkpoint_folders)
        if (job.state == "running" && std::filesystem::path(place.folder).parent_path() == run)
          return job.id;
  return std::nullopt;
}

void add_checkpoints(CLI::App& app) {
  auto command = app.add_subcommand(
      "checkpoints", "list checkpoints that `parcae submit --resume` can go on from; remove those not needed\n"
                     "Example: parcae checkpoints --keep 1");
  auto x = add_options(*command, list_or_remove);
  auto* named = command->add_option("PLACE", x->place,
                                    "a folder, or s3://BUCKET/PREFIX (default: the usual folder, and the places the "
                                    "manager knows of)");
  command->add_option("--state", x->place, "a keeper's folder")->check(CLI::ExistingDirectory)->excludes(named);
  auto* in_json = command->add_flag("--json", x->json, "the list as one line of JSON");
  auto* gone =
      command->add_option("--remove", x->remove, "remove the checkpoint of this name, or all of a job (repeatable)")
          ->allow_extra_args(false)
          ->excludes(in_json);
  command->add_option("--keep", x->keep, "of each job that has ended, remove all but the newest N")
      ->check(CLI::Range(1, 1000))
      ->excludes(gone)
      ->excludes(in_json);
}

void add_export(CLI::App& app) {
  auto command = app.add_subcommand("export", "write a job's parameters as PyTorch users load them, or its losses\n"
                                              "Example: parcae export 1 --output gpt.safetensors");
  auto x = add_options(*command, export_job);
  command
      ->add_option("JOB", x->what, "a job's number, or a checkpoint's name, folder or s3:// URL (no manager is needed)")
      ->required();
  command->add_option("--output", x->output, "the safetensors file to write; for huggingface a folder")
      ->check(in_a_folder);
  command
      ->add_option("--layout", x->layout,
                   "pytorch, or (gpt) huggingface: model.safetensors and config.json as transformers loads them")
      ->check(CLI::IsMember({"pytorch", "huggingface"}))
      ->capture_default_str();
  command->add_option("--curve", x->curve, "what came of each step so far, as CSV: its loss, norm, rate, time")
      ->check(in_a_folder);
}

} // namespace parcae
