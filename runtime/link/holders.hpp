#pragma once

// What the connections of one certificate's holder have together.

#include "protocols/trust/identity.hpp"
#include "runtime/link/allowance.hpp"
#include "runtime/link/link.hpp"

#include <map>
#include <memory>
#include <string>

namespace parcae {

/// Who holds a certificate of a role and name holds all that were made for it. On one thread.
class holders {
public:
  /// One connection more. What may be said on all of them, to be kept as long as it is there; null: there are as many
  /// as may be. What was said is not forgotten with the last, else who dials anew could say more: there are as many
  /// entries as certificates were made for.
  std::shared_ptr<allowance> join(const identity& who, const link_options::together& most) {
    auto& all = holders_[uri_of(who)];
    if (!all)
      all = std::make_shared<allowance>(most.questions);
    return static_cast<std::size_t>(all.use_count()) <= most.connections ? all : nullptr; // one is of the table
  }

private:
  std::map<std::string, std::shared_ptr<allowance>> holders_; ///< by uri_of()
};

} // namespace parcae
