#include "runtime/cli/stored_checkpoints.hpp"

#include "gpu/checkpoint/losses.hpp"
#include "runtime/process/state_folder.hpp"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

namespace parcae {

namespace {

stored examine(const store_ptr& at, const stored_list& list) {
  stored x{at, name_of(at->place()), at->place(), {}, 0, 0, {}, 0, {}};
  for (const auto& object : list.objects) {
    x.bytes += object.bytes;
    x.written = std::max(x.written, object.written);
  }
  try {
    checkpoint_reader reader({at});
    x.steps = reader.manifest().at.steps;
    x.of = reader.manifest().specification.steps;
    const auto missing = reader.missing();
    x.layers = missing.empty() ? "all layers" : "layers " + list_of(reader.layers());
    if (missing.empty() && !reader.is_complete())
      x.problem = "its manifest is there, its tensors are not";
  } catch (const checkpoint_error& e) {
    x.problem = e.what();
  }
  return x;
}

/// Those at a place: a checkpoint, all of a job's, or the jobs of a keeper or a bucket.
void collect(const store_ptr& at, int depth, std::vector<stored>& to) {
  const auto list = at->list();
  if (std::ranges::any_of(list.objects, [](const auto& x) { return is_manifest(x.name); }))
    to.push_back(examine(at, list));
  else if (depth > 0)
    for (const auto& name : list.folders)
      collect(at->below(name), depth - 1, to);
}

/// All checkpoints of a job there.
std::filesystem::path run_of(const stored& x) {
  return std::filesystem::path(x.place).parent_path();
}

/// Which job needs it, in words: one that has not ended wrote it, or was started from it. Empty: none that this manager
/// has.
std::string needed_by(const stored& x, const status_reply& known) {
  for (const auto& job : known.jobs) {
    if (job.state != "running" && job.state != "queued")
      continue;
    const auto label = "job " + std::to_string(job.id) + " (" + job.name + "), which is " + job.state;
    if (job.resumed_from == x.place)
      return label;
    for (const auto& place : job.checkpoint_folders)
      if (std::filesystem::path(place.folder).parent_path() == run_of(x))
        return label;
  }
  return {};
}

/// Folders of a job's checkpoints that have nothing in them, and the job's own if that is all.
void remove_empty_folders(const std::filesystem::path& run) {
  std::error_code stays;
  std::vector<std::filesystem::path> folders;
  for (const auto& x : std::filesystem::directory_iterator(run, stays))
    if (version_in(x.path().filename().string()))
      folders.push_back(x.path());
  for (const auto& x : folders)
    std::filesystem::remove(x, stays);
  std::filesystem::remove(run, stays);
}

} // namespace

std::string name_of(const std::filesystem::path& place) {
  return (place.parent_path().filename() / place.filename()).string();
}

std::set<std::string> known_places(const status_reply* known) {
  std::set<std::string> result{default_state_folder().string()};
  if (known)
    for (const auto& job : known->jobs)
      for (const auto& place : job.checkpoint_folders)
        result.insert(std::filesystem::path(place.folder).parent_path().parent_path().string());
  return result;
}

std::vector<stored> stored_below(const store_ptr& place) {
  std::vector<stored> result;
  collect(place, 2, result);
  std::ranges::sort(result, [&](const stored& a, const stored& b) {
    return std::pair(run_of(a), b.steps) < std::pair(run_of(b), a.steps);
  });
  return result;
}

std::vector<stored> to_be_removed(const std::vector<stored>& all, const std::vector<std::string>& names,
                                  std::size_t keep, const status_reply& known) {
  std::vector<stored> result;
  for (const auto& name : names) {
    bool any = false;
    for (const auto& x : all)
      if (x.name == name || run_of(x).filename() == name) {
        any = true;
        if (const auto who = needed_by(x, known); !who.empty())
          throw checkpoint_error(x.name + " is needed by " + who + ": cancel it first");
        result.push_back(x);
      }
    if (!any)
      throw checkpoint_error("no checkpoint " + name + " is seen from this machine; `parcae checkpoints` lists them");
  }
  std::map<std::filesystem::path, std::size_t> usable; // by job, the newest come first
  if (keep > 0)
    for (const auto& x : all) {
      auto& kept = usable[run_of(x)];
      if (kept >= keep && needed_by(x, known).empty())
        result.push_back(x);
      kept += x.problem.empty();
    }
  return result;
}

void remove_stored(const stored& x) {
  remove_checkpoint(*x.at);
  if (const auto run = run_above(x.place)) {
    const auto left = run->list().folders;
    if (std::ranges::none_of(left, [&](const auto& y) { return version_in(y) && has_manifest(*run->below(y)); }))
      remove_losses(*run);
  }
  if (!is_url(x.place))
    remove_empty_folders(run_of(x));
}

} // namespace parcae
