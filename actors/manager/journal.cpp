#include "actors/manager/journal.hpp"

#include "protocols/wire/errors.hpp"

#include <spdlog/spdlog.h>

#include <utility>

namespace parcae {

journal_actor::behavior_type journal(journal_actor::pointer self, std::shared_ptr<journal_store> store) {
  self->set_exception_handler([](std::exception_ptr& x) {
    try {
      std::rethrow_exception(x);
    } catch (const std::exception& e) {
      spdlog::critical("the journal cannot be written: {}", e.what());
      return caf::make_error(parcae_error::internal, std::string(e.what()));
    }
  });
  return {[store, told = false](const journal_entries& x) mutable -> caf::result<void> {
    try {
      store->write(x.all);
    } catch (const std::exception& e) {
      if (!x.may_fail)
        throw;
      if (!std::exchange(told, true))
        spdlog::warn("how jobs go cannot be kept: {}", e.what());
      return caf::make_error(parcae_error::internal, std::string(e.what()));
    }
    return caf::unit;
  }};
}

} // namespace parcae
