#include "runtime/cli/renting.hpp"

#include "runtime/market/feed.hpp"
#include "runtime/market/provision.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <future>
#include <optional>

namespace parcae {

struct renting::parts {
  broker_actor broker;
  std::optional<price_feed> feed;
};

renting::renting(renting_options options) : options_(std::move(options)) {
  if (options_.market.empty())
    return;
  market_ = read_market(options_.market);
  const market::renter checked(market_.pools, market_.paths, 60);
  const provisioner known({.hook = options_.hook, .manager = {}},
                          [](const provision_answer&) {}); // calls nobody, but is there
}

std::set<std::string> renting::pools_that_wait() const {
  std::set<std::string> pools, places;
  for (const auto& x : market_.pools) {
    pools.insert(x.name);
    places.insert(x.place);
  }
  return places.size() > 1 || !kinds().empty() ? pools : std::set<std::string>();
}

std::map<std::string, std::string> renting::kinds() const {
  std::map<std::string, std::string> result;
  std::set<std::string> all;
  for (const auto& x : market_.pools) {
    result[x.name] = x.kind;
    all.insert(x.kind);
  }
  return all.size() > 1 ? result : std::map<std::string, std::string>();
}

renting::~renting() {
  end();
}

void renting::end() {
  if (!parts_)
    return;
  parts_->feed.reset();
  caf::anon_send_exit(parts_->broker, caf::exit_reason::user_shutdown);
  parts_.reset();
}

void renting::begin(caf::actor_system& system, const std::string& listens, registry_actor registry,
                    journal_actor journal, ledger_record past) {
  if (options_.market.empty())
    return;
  const auto manager = options_.reached_at.empty() ? listens : options_.reached_at;
  // The hook is the broker's, and ends with it; it is called when the broker is known.
  std::promise<caf::actor_addr> known;
  const auto hook =
      std::make_shared<provisioner>(provision_options{.hook = options_.hook, .manager = manager},
                                    [broker = std::shared_future(known.get_future())](const provision_answer& answer) {
                                      if (const auto to = caf::actor_cast<broker_actor>(broker.get()))
                                        caf::anon_send(to, hook_news{answer.pools, answer.problem, answer.request});
                                    });
  broker_config config;
  config.pools = market_.pools;
  config.paths = market_.paths;
  config.fixed_usd_per_h = market_.fixed_usd_per_h;
  config.interval = options_.interval;
  config.registry = std::move(registry);
  config.journal = std::move(journal);
  config.past = std::move(past);
  config.provide = [hook](std::uint64_t request, const std::vector<pool_order>& pools) {
    hook->want({request, pools});
  };
  parts_ = std::make_unique<parts>();
  parts_->broker = system.spawn<caf::detached>(broker, std::move(config));
  known.set_value(parts_->broker.address());
  caf::actor_cast<caf::abstract_actor*>(parts_->broker)->attach_functor([](const caf::error& why) {
    if (why != caf::exit_reason::user_shutdown)
      spdlog::error("market: the broker died ({}): nothing is rented or given back until the manager is started again",
                    caf::to_string(why));
  });
  if (!market_.feed.empty())
    parts_->feed.emplace(feed_options{.source = market_.feed, .pools = market_.pools, .every = options_.interval},
                         [to = parts_->broker](const feed_report& report) {
                           caf::anon_send(to, feed_news{report.quotes, report.problem});
                         });
}

} // namespace parcae
