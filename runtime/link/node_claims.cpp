#include "runtime/link/node_claims.hpp"

#include <algorithm>

namespace parcae {

namespace {

// Not by the serial: a certificate is made anew.
bool same_holder(const std::optional<identity>& a, const std::optional<identity>& b) {
  return a.has_value() == b.has_value() && (!a || (a->role == b->role && a->name == b->name));
}

} // namespace

std::string node_claims::claim(const std::string& node, const void* connection, const std::optional<identity>& who) {
  auto& known = nodes_.try_emplace(node, entry{nullptr, who, {}}).first->second;
  if (known.connection)
    return "it says to be a node that another connection is of";
  if (!same_holder(known.who, who))
    return "it says to be a node that is " + (known.who ? to_string(*known.who) : "another's");
  known = {connection, who, {}};
  if (who) {
    const lock held(mutex_);
    directory_[node] = *who;
  }
  return {};
}

void node_claims::release(const std::string& node, const void* connection, milliseconds now) {
  const auto at = nodes_.find(node);
  if (at == nodes_.end() || at->second.connection != connection)
    return;
  const auto who = at->second.who;
  at->second.connection = nullptr;
  at->second.free_from = now + (who && joins(who->role) ? absence : aftermath);
  const auto is_old = [&](const auto& x) { return !x.second.connection && same_holder(x.second.who, who); };
  if (static_cast<std::size_t>(std::ranges::count_if(nodes_, is_old)) > max_ended) {
    auto oldest = nodes_.end();
    for (auto i = nodes_.begin(); i != nodes_.end(); ++i)
      if (is_old(*i) && (oldest == nodes_.end() || i->second.free_from < oldest->second.free_from))
        oldest = i;
    nodes_.erase(oldest);
  }
  const lock held(mutex_);
  directory_.erase(node);
}

void node_claims::expire(milliseconds now) {
  std::erase_if(nodes_, [&](const auto& x) { return !x.second.connection && x.second.free_from <= now; });
}

std::optional<identity> node_claims::identity_of(const std::string& node) const {
  const lock held(mutex_);
  const auto at = directory_.find(node);
  return at == directory_.end() ? std::nullopt : std::optional(at->second);
}

} // namespace parcae
