#include "runtime/web/poller.hpp"

#include "runtime/process/client.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace parcae {

namespace {

constexpr std::chrono::seconds interval{1};
constexpr std::chrono::hours for_ever{24 * 365 * 100};

/// Until that time, or the stop.
void pause(const std::stop_token& stop, std::chrono::milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any bell;
  std::unique_lock held(mutex);
  bell.wait_for(held, stop, time, [] { return false; });
}

} // namespace

poller::poller(manager_access manager, listener told) :
    manager_(std::move(manager)), told_(std::move(told)), thread_([this](const std::stop_token& x) { run(x); }) {}

void poller::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      follow(stop);
    } catch (const std::exception& e) { // no manager, a bundle that cannot be read, no threads
      told_.away(e.what());
    }
    pause(stop, interval);
  }
}

/// Until it is stopped, or the manager refuses: another build, which needs another connection.
void poller::follow(const std::stop_token& stop) {
  cluster_facts facts;
  std::stop_source over;
  const std::stop_callback both(stop, [&] { over.request_stop(); });
  manager_client client(manager_);
  client.follow(facts.next(), interval,
                {.heard =
                     [&](status_reply x) {
                       facts.take(std::move(x));
                       told_.heard(std::make_shared<const status_reply>(facts.status()));
                       return facts.next();
                     },
                 .away = told_.away,
                 .lost =
                     [&](const std::string& why) {
                       told_.away(why);
                       over.request_stop();
                     }},
                for_ever);
  while (!over.stop_requested()) {
    told_.certificate(client.certificate_problem());
    pause(over.get_token(), std::chrono::minutes(10));
  }
}

} // namespace parcae
