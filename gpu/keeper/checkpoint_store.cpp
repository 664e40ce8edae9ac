#include "gpu/keeper/checkpoint_store.hpp"

#include "protocols/base/input_file.hpp"
#include "protocols/model/early_stop.hpp"
#include "protocols/store/url_rules.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <random>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_open = 8; // places, of as many jobs

/// No other attempt at a share has it.
std::string random_word() {
  std::random_device random;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
}

/// A checkpoint that is named by where it is.
bool says_where(const std::string& folder) {
  return is_url(folder) || std::filesystem::path(folder).is_absolute();
}

} // namespace

checkpoint_store::checkpoint_store(std::filesystem::path folder, std::string keeper,
                                   std::vector<std::filesystem::path> places, const store_pace& pace) :
    own_(open_store(folder.string())),
    keeper_(std::move(keeper)), places_(std::move(places)), pace_(pace), thread_([this] { run(); }) {}

checkpoint_store::~checkpoint_store() {
  ending_ = true;
  stop_.request_stop();
  queue_.close();
  thread_.join();
}

void checkpoint_store::run() {
  while (auto next = queue_.take())
    next->work(); // and frees the shards in it before it waits again
}

std::string checkpoint_store::place_of(const checkpoint& x) const {
  auto place = x.specification.checkpoint.to.empty() ? own_->place() : x.specification.checkpoint.to;
  while (place.ends_with('/'))
    place.pop_back();
  return place + "/" + x.name;
}

void checkpoint_store::write(checkpoint x, std::vector<std::shared_ptr<const shard_bytes>> shards, commit_result result,
                             std::function<void(checkpointed)> done, loss_record losses) {
  request next;
  next.give_up = [done, job = x.job, at = x.at, folder = place_of(x)](const checkpoint& newer) {
    if (newer.job != job || newer.at != at)
      done({job, at, {}, folder, "it waited for the disk until a newer one was to be written"});
  };
  const auto newest = x;
  next.work = [=, this, x = std::move(x), shards = std::move(shards), done = std::move(done),
               losses = std::move(losses)] {
    auto answer = write_now(x, shards, result, losses);
    if (!ending_)
      done(std::move(answer));
  };
  if (const auto waiting = queue_.replace(std::move(next), [](const auto& y) { return y.give_up != nullptr; }))
    waiting->give_up(newest);
}

void checkpoint_store::write_losses(object_store& run, const loss_record& x, std::uint32_t samples) {
  if (losses_.size() > max_open)
    losses_.clear();
  auto& written = losses_[run.place()];
  for (const auto first : x.changed_since(written)) {
    auto block = x.part(first);
    block.samples = samples;
    put_losses(run, std::move(block));
  }
  written = x;
}

void checkpoint_store::read_losses(const restore& x, const std::vector<store_ptr>& checkpoint,
                                   const std::function<void(const commit_result&, shard_bytes)>& on_shard) {
  std::string problem = "nothing of them is there";
  for (const auto& place : checkpoint)
    try {
      const auto& name = place->place();
      const auto found = parcae::read_losses(*open(name.substr(0, name.rfind('/')), x.specification), x.at.steps);
      for (const auto& shard : shards_of(found.known, 0, x.at))
        on_shard({}, *shard);
      if (found.known.steps() == x.at.steps && found.problem.empty())
        return;
      problem = found.problem.empty() ? problem : found.problem;
    } catch (const std::exception& e) { // the job goes on without
      problem = e.what();
    }
  spdlog::warn("losses of steps before {} are not known: {}", x.at.steps, problem);
}

std::string checkpoint_store::refusal_of(const std::string& place) const {
  if (places_.empty())
    return {};
  try {
    auto all = places_;
    all.emplace_back(own_->place());
    if (is_url(place))
      require_allowed(place, all);
    else
      require_within(place, all);
    return {};
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

store_ptr checkpoint_store::open(const std::string& place, const job_specification& job) {
  if (const auto why = refusal_of(place); !why.empty())
    throw std::runtime_error(why);
  const auto& [to, endpoint, region] = job.checkpoint;
  if (opened_.size() > max_open)
    opened_.clear();
  auto& result = opened_[{place, endpoint, region}];
  if (!result)
    result = open_store(place, {endpoint, region, stop_.get_token(), pace_, places_});
  return result;
}

checkpoint_store::home checkpoint_store::home_of(const job_specification& job) {
  return job.checkpoint.to.empty() ? home{own_, true} : home{open(job.checkpoint.to, job), false};
}

checkpointed checkpoint_store::write_now(const checkpoint& x, std::vector<std::shared_ptr<const shard_bytes>> shards,
                                         const commit_result& result, const loss_record& losses) {
  checkpointed answer{x.job, x.at, {}, place_of(x), {}};
  try {
    for (const auto& shard : shards)
      answer.layers.push_back(shard->layer);
    const auto home = home_of(x.specification);
    write_losses(*home.store->below(x.name.substr(0, x.name.rfind('/'))), losses, x.specification.global_batch);
    write_to(home, x, std::move(shards), result);
  } catch (const std::exception& e) {
    answer.layers.clear();
    answer.problem = e.what();
  }
  return answer;
}

void checkpoint_store::write_to(const home& at, const checkpoint& x,
                                std::vector<std::shared_ptr<const shard_bytes>> shards, const commit_result& result) {
  const auto slash = x.name.rfind('/');
  const auto run = at.store->below(x.name.substr(0, slash));
  const auto to = run->below(x.name.substr(slash + 1));
  if (at.is_own)
    delete_share(*to); // of an earlier attempt
  else if (!tidy_.contains(run->place()))
    tidy_up(*run);
  tidy_.erase(run->place());
  try {
    if (!shards.empty()) {
      checkpoint_share share{{x.at, result, x.specification, x.data_digest, {}, 0, {}}, std::move(shards)};
      write_share(*to, keeper_, std::move(share), ending_, at.is_own ? "" : random_word());
    }
  } catch (const std::exception&) {
    if (at.is_own)
      delete_share(*to);
    throw;
  }
  tidy_.insert(run->place());
  try {
    delete_others(*run, at.is_own, x);
  } catch (const std::exception& e) { // what was written is there all the same
    spdlog::warn("older checkpoints stay: {}", e.what());
  }
}

void checkpoint_store::tidy_up(object_store& run) const {
  try {
    run.give_up_unfinished([this](std::string_view name) { return is_of_share(name, keeper_); });
  } catch (const store_error& e) { // this is not the worst; if it cannot be reached, writing will say so
    spdlog::warn("what was left unfinished stays: {}", e.what());
  }
}

void checkpoint_store::delete_others(const object_store& run, bool is_own, const checkpoint& x) const {
  std::vector<version> old;
  for (const auto& name : run.list().folders)
    if (const auto at = version_in(name); at && *at < x.at && !std::ranges::count(x.kept, at->steps))
      old.push_back(*at);
  if (old.empty())
    return;
  const auto newest = is_own ? x.at : newest_complete(run).value_or(version());
  for (const auto& at : old)
    if (at < newest) {
      const auto there = run.below(to_string(at));
      if (is_own)
        delete_share(*there);
      else
        remove_checkpoint(*there);
    }
}

/// Only this keeper's: others may use the same folder.
void checkpoint_store::delete_share(object_store& of) const {
  const auto ours = [this](std::string_view name) { return is_of_share(name, keeper_); };
  try {
    for (const auto& x : of.list().objects)
      if (ours(x.name))
        of.remove(x.name);
    of.give_up_unfinished(ours);
  } catch (const store_error&) { // what cannot be deleted stays
  }
}

void checkpoint_store::read(restore x, std::function<void(const commit_result&, shard_bytes)> on_shard,
                            std::function<void(restored)> done) {
  queue_.put({[this, x = std::move(x), on_shard = std::move(on_shard), done = std::move(done)] {
                auto answer = read_now(x, on_shard);
                if (!ending_)
                  done(std::move(answer));
              },
              nullptr});
}

std::vector<store_ptr> checkpoint_store::find(const restore& x) {
  const std::filesystem::path asked(x.folder);
  const auto name = (asked.parent_path().filename() / asked.filename()).string();
  const auto& to = x.specification.checkpoint.to;
  std::vector<store_ptr> candidates, result;
  if (says_where(x.folder) && refusal_of(x.folder).empty())
    candidates.push_back(open(x.folder, x.specification));
  if (!to.empty() && refusal_of(to).empty())
    candidates.push_back(open(to, x.specification)->below(name));
  candidates.push_back(own_->below(name));
  std::optional<store_error> problem;
  for (auto& candidate : candidates)
    try {
      const auto is_same = [&](const store_ptr& y) { return y->place() == candidate->place(); };
      if (std::ranges::none_of(result, is_same) && has_manifest(*candidate))
        result.push_back(std::move(candidate));
    } catch (const store_error& e) { // another may have it
      problem = e;
    }
  if (result.empty() && problem)
    throw *problem;
  return result;
}

restored checkpoint_store::read_now(const restore& x,
                                    const std::function<void(const commit_result&, shard_bytes)>& on_shard) {
  restored answer{x.job, x.at, false, {}, false};
  try {
    const auto places = find(x);
    if (places.empty()) {
      const auto why = says_where(x.folder) ? refusal_of(x.folder) : std::string();
      answer.problem = keeper_ + " has no checkpoint " + x.folder + " in " + own_->place() +
                       (why.empty() ? "" : ", and elsewhere it may not look: " + why);
      return answer;
    }
    checkpoint_reader reader(places);
    const auto& manifest = reader.manifest();
    auto model = manifest.specification.model;
    // Where files were, and what version 0 was, is no part of it.
    model.path = x.specification.model.path;
    model.weights = x.specification.model.weights;
    model.weights_digests = x.specification.model.weights_digests;
    if (manifest.at.steps != x.at.steps || model != x.specification.model ||
        moments_of(manifest.specification.optimizer) != moments_of(x.specification.optimizer))
      throw checkpoint_error("the checkpoint at " + places.front()->place() +
                             " is of another step, model or optimizer");
    read_losses(x, places, on_shard);
    for (auto layer : reader.layers()) {
      if (ending_)
        return answer;
      try {
        auto shard = reader.read(layer);
        shard.at = x.at;
        if (layer == layer_with_course(manifest.specification) && x.specification.patience == 0)
          shard.parts.pop_back();
        else if (layer == layer_with_course(x.specification) && manifest.specification.patience == 0)
          shard.parts.push_back(bytes_of(validation_course{}));
        on_shard(manifest.result, std::move(shard));
      } catch (const checkpoint_error& e) { // the other layers may be good
        answer.damaged = true;
        answer.problem = e.what();
      }
    }
  } catch (const store_error& e) {
    answer.passing = true;
    answer.problem = e.what();
  } catch (const std::exception& e) {
    answer.damaged = true;
    answer.problem = e.what();
  }
  return answer;
}

} // namespace parcae
