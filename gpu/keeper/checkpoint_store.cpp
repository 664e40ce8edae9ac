#include "gpu/keeper/checkpoint_store.hpp"

#include "gpu/model/early_stop.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace parcae {

namespace {

/// What the files of a share begin with, whole or not, behind the keeper's name.
constexpr const char* beginnings[] = {".manifest", ".safetensors"};

} // namespace

checkpoint_store::checkpoint_store(std::filesystem::path folder, std::string keeper) :
    folder_(std::move(folder)), keeper_(std::move(keeper)), thread_([this] { run(); }) {}

checkpoint_store::~checkpoint_store() {
  ending_ = true;
  queue_.close();
  thread_.join();
}

void checkpoint_store::run() {
  while (auto next = queue_.take())
    next->work(); // and frees the shards in it before it waits again
}

void checkpoint_store::write(checkpoint x, std::vector<std::shared_ptr<const shard_bytes>> shards, commit_result result,
                             std::function<void(checkpointed)> done) {
  request next;
  next.give_up = [done, job = x.job, at = x.at, folder = (folder_ / x.name).string()](const checkpoint& newer) {
    if (newer.job != job || newer.at != at)
      done({job, at, {}, folder, "it waited for the disk until a newer one was to be written"});
  };
  const auto newest = x;
  next.work = [=, this, x = std::move(x), shards = std::move(shards), done = std::move(done)] {
    auto answer = write_now(x, shards, result);
    if (!ending_)
      done(std::move(answer));
  };
  if (const auto waiting = queue_.replace(std::move(next), [](const auto& y) { return y.give_up != nullptr; }))
    waiting->give_up(newest);
}

checkpointed checkpoint_store::write_now(const checkpoint& x, std::vector<std::shared_ptr<const shard_bytes>> shards,
                                         const commit_result& result) const {
  checkpointed answer{x.job, x.at, {}, {}, {}};
  const auto folder = folder_ / x.name;
  answer.folder = folder.string();
  try {
    for (const auto& shard : shards)
      answer.layers.push_back(shard->layer);
    delete_share(folder); // of an earlier attempt
    if (!shards.empty())
      write_share(folder, keeper_, {{x.at, result, x.specification, x.data_digest, {}, 0, {}}, std::move(shards)},
                  ending_);
    delete_others(x);
  } catch (const std::exception& e) {
    answer.layers.clear();
    answer.problem = e.what();
    delete_share(folder);
  }
  return answer;
}

void checkpoint_store::delete_others(const checkpoint& x) const {
  const auto mine = (folder_ / x.name).filename().string();
  std::error_code failure;
  for (std::filesystem::directory_iterator i((folder_ / x.name).parent_path(), failure), end; !failure && i != end;
       i.increment(failure)) {
    const auto name = i->path().filename().string();
    std::uint64_t steps = 0;
    const auto [rest, wrong] = std::from_chars(name.data(), name.data() + name.size(), steps);
    if (wrong == std::errc() && *rest == '@' && steps <= x.at.steps && name != mine &&
        !std::ranges::count(x.kept, steps))
      delete_share(i->path());
  }
}

/// Only this keeper's files: others may use the same folder.
void checkpoint_store::delete_share(const std::filesystem::path& of) const {
  std::vector<std::filesystem::path> files;
  std::error_code failure;
  for (std::filesystem::directory_iterator i(of, failure), end; !failure && i != end; i.increment(failure))
    if (std::ranges::any_of(beginnings, [&](const char* beginning) {
          return i->path().filename().string().starts_with(keeper_ + beginning);
        }))
      files.push_back(i->path());
  for (const auto& file : files)
    std::filesystem::remove(file, failure);
  std::filesystem::remove(of, failure); // unless others have files there
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

std::vector<std::filesystem::path> checkpoint_store::find(const restore& x) const {
  const std::filesystem::path asked(x.folder);
  std::vector<std::filesystem::path> result;
  if (asked.is_absolute() && std::filesystem::exists(asked))
    result.push_back(asked);
  const auto own = folder_ / asked.parent_path().filename() / asked.filename();
  if (std::filesystem::exists(own) && (result.empty() || !std::filesystem::equivalent(own, asked)))
    result.push_back(own);
  return result;
}

restored checkpoint_store::read_now(const restore& x,
                                    const std::function<void(const commit_result&, shard_bytes)>& on_shard) const {
  restored answer{x.job, x.at, false, {}};
  try {
    const auto folders = find(x);
    if (folders.empty()) {
      answer.problem = keeper_ + " has no checkpoint " + x.folder + " in " + folder_.string();
      return answer;
    }
    checkpoint_reader reader(folders);
    const auto& manifest = reader.manifest();
    auto model = manifest.specification.model;
    // Where files were, and what version 0 was, is no part of it.
    model.path = x.specification.model.path;
    model.weights = x.specification.model.weights;
    model.weights_digests = x.specification.model.weights_digests;
    if (manifest.at.steps != x.at.steps || model != x.specification.model ||
        moments_of(manifest.specification.optimizer) != moments_of(x.specification.optimizer))
      throw checkpoint_error("the checkpoint at " + folders.front().string() +
                             " is of another step, model or optimizer");
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
  } catch (const std::exception& e) {
    answer.damaged = true;
    answer.problem = e.what();
  }
  return answer;
}

} // namespace parcae
