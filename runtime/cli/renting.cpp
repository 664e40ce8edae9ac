#include "runtime/cli/renting.hpp"

#include "runtime/market/feed.hpp"
#include "runtime/market/provision.hpp"

#include <caf/all.hpp>

#include <future>
#include <optional>

namespace parcae {

namespace {

// As the hook is told it.
provision_request request_of(const market::renting_order& order, const std::vector<instance_pool>& pools,
                             std::uint64_t number) {
  provision_request result{number, {}};
  for (const auto& x : order.pools) {
    const auto pool = std::ranges::find(pools, x.name, &instance_pool::name);
    result.pools.push_back({x.name, pool->kind, pool->place, x.want, x.have, x.release});
  }
  return result;
}

hook_news news_of(const provision_answer& x) {
  hook_news result{{}, x.problem};
  for (const auto& pool : x.pools)
    result.words.push_back({pool.pool, pool.can, pool.why});
  return result;
}

} // namespace

// Threads end before what they tell.
struct renting::parts {
  std::promise<broker_actor> known;
  std::shared_future<broker_actor> broker{known.get_future()};
  std::optional<provisioner> hook;
  std::optional<price_feed> feed;
  std::uint64_t requests = 0; ///< the broker's thread
  broker_actor actor;

  ~parts() {
    if (actor)
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
};

renting::renting(renting_options options) : options_(std::move(options)) {
  if (options_.market.empty())
    return;
  market_ = read_market(options_.market);
  const market::renter checked(market_.pools, market_.paths, 60);
}

renting::~renting() = default;

void renting::begin(caf::actor_system& system, const std::string& manager, registry_actor registry,
                    journal_actor journal, ledger_record past) {
  if (options_.market.empty())
    return;
  parts_ = std::make_unique<parts>();
  auto& x = *parts_;
  x.hook.emplace(
      provision_options{.hook = options_.hook, .manager = manager},
      [broker = x.broker](const provision_answer& answer) { caf::anon_send(broker.get(), news_of(answer)); });
  broker_config config;
  config.pools = market_.pools;
  config.paths = market_.paths;
  config.fixed_usd_per_h = market_.fixed_usd_per_h;
  config.interval = options_.interval;
  config.registry = std::move(registry);
  config.journal = std::move(journal);
  config.past = std::move(past);
  config.provide = [this](const market::renting_order& order) {
    if (!order.pools.empty())
      parts_->hook->want(request_of(order, market_.pools, ++parts_->requests));
  };
  x.actor = system.spawn<caf::detached>(broker, std::move(config));
  x.known.set_value(x.actor);
  if (!market_.feed.empty())
    x.feed.emplace(feed_options{.source = market_.feed, .pools = market_.pools, .every = options_.interval},
                   [broker = x.actor](const feed_report& report) {
                     caf::anon_send(broker, feed_news{report.quotes, report.problem});
                   });
}

} // namespace parcae
