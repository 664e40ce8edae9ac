#include "gpu/keeper/shard_store.hpp"

#include "protocols/base/digest.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace parcae {

namespace {

/// Of the parameters and, if there are any, the buffers: moments are as large as the parameters, buffers smaller.
std::string digest_of(const shard_bytes& x, bool has_course) {
  const auto& last = x.parts.at(x.parts.size() - (has_course ? 2 : 1));
  sha256 digest;
  digest.add(x.parts.front());
  if (last.size() < x.parts.front().size())
    digest.add(last);
  return digest.hexadecimal();
}

} // namespace

bool is_void(const version& x, const std::vector<chain_link>& chain) {
  if (x == version{})
    return false;
  auto newest = generation{};
  for (const auto& link : chain) {
    if (link.by == x.by)
      return x.steps <= link.base || x.steps > link.last;
    newest = std::max(newest, link.by);
  }
  return x.by < newest;
}

bool shard_store::add(shard_ptr x, const commit_result& result) {
  const auto at = x->at;
  if (at.steps < safe_.steps || is_void(at, chain_))
    return false;
  auto& versions = layers_[x->layer];
  if (!versions.emplace(at, std::move(x)).second)
    return false; // sent again because its acknowledgement was lost
  results_[at] = result;
  if (versions.size() > keeper_versions) {
    versions.erase(
        std::ranges::find_if(versions, [&](const auto& y) { return y.first != safe_ && y.first != newest_; }));
    drop_unused_results();
  }
  return true;
}

void shard_store::confirm(const version& newest, const version& safe, const std::vector<chain_link>& chain) {
  newest_ = newest;
  safe_ = safe;
  chain_ = chain;
  for (auto& [layer, versions] : layers_)
    std::erase_if(versions, [&](const auto& x) { return x.first.steps < safe_.steps || is_void(x.first, chain_); });
  std::erase_if(layers_, [](const auto& x) { return x.second.empty(); });
  drop_unused_results();
}

void shard_store::go_back(const version& at) {
  newest_ = at; // newer ones, which may be more than there is room for, would have it go
  if (safe_ <= at)
    return;
  safe_ = at;
  chain_.clear(); // it may not reach back to `at`; the next confirm brings one that does
}

shard_store::shard_ptr shard_store::find(std::uint32_t layer, const version& at) const {
  auto versions = layers_.find(layer);
  if (versions == layers_.end())
    return nullptr;
  auto found = versions->second.find(at);
  return found == versions->second.end() ? nullptr : found->second;
}

inventory shard_store::held() const {
  inventory result;
  for (const auto& [layer, versions] : layers_)
    for (const auto& [at, shard] : versions)
      result.push_back({layer, at});
  return result;
}

std::vector<commit_result> shard_store::results() const {
  std::vector<commit_result> result;
  for (const auto& [at, x] : results_)
    result.push_back(x);
  return result;
}

commit_result shard_store::result_of(const version& at) const {
  const auto found = results_.find(at);
  return found == results_.end() ? commit_result{} : found->second;
}

std::vector<layer_digest> shard_store::digests(const version& at, std::optional<std::uint32_t> with_course) const {
  std::vector<layer_digest> result;
  for (const auto& [layer, versions] : layers_)
    if (auto found = versions.find(at); found != versions.end() && !found->second->parts.empty())
      result.push_back({layer, digest_of(*found->second, layer == with_course)});
  return result;
}

std::uint32_t shard_store::layers_at(const version& at) const {
  return static_cast<std::uint32_t>(
      std::count_if(layers_.begin(), layers_.end(), [&](const auto& x) { return x.second.contains(at); }));
}

void shard_store::drop_unused_results() {
  std::set<version> used;
  for (const auto& [layer, versions] : layers_)
    for (const auto& [at, shard] : versions)
      used.insert(at);
  std::erase_if(results_, [&](const auto& x) { return !used.contains(x.first); });
}

} // namespace parcae
