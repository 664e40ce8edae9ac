#include "runtime/journal/etcd_journal.hpp"

#include "protocols/base/digest.hpp"
#include "protocols/base/printable.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value_to.hpp>

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace parcae {

namespace {

namespace json = boost::json;

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int page_keys = 16; // of up to some 200 KB each

// 64-bit numbers are strings; one that is left out is 0.
std::int64_t number_in(const json::object& x, std::string_view name) {
  const auto* found = x.if_contains(name);
  if (!found)
    return 0;
  std::int64_t result = 0;
  const auto* text = found->if_string();
  if (text && std::from_chars(text->data(), text->data() + text->size(), result).ptr == text->data() + text->size())
    return result;
  throw std::runtime_error("etcd answers a " + std::string(name) + " that is no number");
}

std::string bytes_in(const json::object& x, std::string_view name) {
  const auto* found = x.if_contains(name);
  if (!found)
    return {};
  if (const auto* text = found->if_string())
    if (auto bytes = from_base64(std::string_view(text->data(), text->size())))
      return std::move(*bytes);
  throw std::runtime_error("etcd answers a " + std::string(name) + " that is no text in base64");
}

std::vector<const json::object*> keys_in(const json::object& range) {
  std::vector<const json::object*> result;
  const auto* all = range.if_contains("kvs");
  if (!all)
    return result;
  if (!all->is_array())
    throw std::runtime_error("etcd answers a range that is none");
  for (const auto& x : all->get_array()) {
    if (!x.is_object())
      throw std::runtime_error("etcd answers a key that is none");
    result.push_back(&x.get_object());
  }
  return result;
}

class etcd_journal final : public journal_store {
public:
  etcd_journal(const etcd_place& place, std::string leader, std::int64_t revision, milliseconds request_limit,
               std::shared_ptr<const std::atomic<bool>> is_over) :
      client_(place),
      prefix_(place.prefix + "journal/"), leader_(std::move(leader)), revision_(revision),
      request_limit_(request_limit), is_over_(std::move(is_over)) {}

  std::vector<journal_entry> read() override {
    // Nobody writes meanwhile: the manager that led before does so no more. A page is answered within a try's second.
    std::vector<journal_entry> result;
    auto from = prefix_;
    for (bool more = true; more;) {
      const auto page = client_.ask("/v3/kv/range",
                                    {{"key", to_base64(from)},
                                     {"range_end", to_base64(after_all_of(prefix_))},
                                     {"limit", std::to_string(page_keys)}},
                                    10 * request_limit_);
      const auto found = keys_in(page);
      for (const auto* x : found) {
        const auto name = bytes_in(*x, "key");
        const auto value = bytes_in(*x, "value");
        if (!name.starts_with(prefix_) || name < from)
          throw std::runtime_error("etcd answers a key that was not asked for");
        result.push_back({name.substr(prefix_.size()), {value.begin(), value.end()}});
        from = name + '\0';
      }
      more = page.contains("more") && !found.empty();
    }
    return result;
  }

  void write(const std::vector<journal_entry>& all) override {
    if (*is_over_) // what waits would be asked of an etcd that may not answer, while this manager is to end
      throw std::runtime_error("this manager's term is over, and another manager leads, or soon will");
    json::array effects;
    for (const auto& x : all) {
      const auto key = to_base64(prefix_ + x.name);
      if (x.bytes.empty()) {
        json::object range{{"key", key}};
        if (x.name.ends_with('/'))
          range["range_end"] = to_base64(after_all_of(prefix_ + x.name));
        effects.emplace_back(json::object{{"request_delete_range", range}});
      } else {
        const auto value = to_base64(std::string_view(x.bytes.data(), x.bytes.size()));
        effects.emplace_back(json::object{{"request_put", {{"key", key}, {"value", value}}}});
      }
    }
    const json::object leads{{"target", "CREATE"},
                             {"result", "EQUAL"},
                             {"key", to_base64(leader_)},
                             {"create_revision", std::to_string(revision_)}};
    const auto done = client_.ask("/v3/kv/txn", {{"compare", {leads}}, {"success", effects}}, request_limit_);
    if (!done.contains("succeeded"))
      throw std::runtime_error("another manager leads");
  }

private:
  etcd_client client_;
  const std::string prefix_, leader_;
  const std::int64_t revision_; ///< at which the key was made by which this manager leads
  const milliseconds request_limit_;
  const std::shared_ptr<const std::atomic<bool>> is_over_; ///< this manager's term
};

} // namespace

class etcd_leadership::implementation {
public:
  implementation(etcd_place place, std::string who, bool standby, lead_listener told, lead_limits limits) :
      place_(std::move(place)), who_(std::move(who)), standby_(standby), told_(std::move(told)), limits_(limits),
      client_(place_), thread_([this](const std::stop_token& stop) { run(stop); }) {}

  std::unique_ptr<journal_store> journal() const {
    return std::make_unique<etcd_journal>(place_, leader_key(), revision_, limits_.step_down, is_over_);
  }

private:
  std::string leader_key() const { return place_.prefix + "leader"; }

  void run(const std::stop_token& stop) {
    try {
      while (!stop.stop_requested() && !campaign())
        pause(stop, limits_.campaign);
      if (!stop.stop_requested())
        told_.leads();
      while (!stop.stop_requested()) {
        pause(stop, limits_.renewal);
        if (!stop.stop_requested())
          renew();
      }
    } catch (const std::exception& e) {
      *is_over_ = true;
      told_.failed(e.what());
    }
    if (lease_ != 0)
      give_back();
  }

  static void pause(const std::stop_token& stop, milliseconds time) {
    std::mutex alone;
    std::unique_lock held(alone);
    std::condition_variable_any().wait_for(held, stop, time, [] { return false; });
  }

  // Whether it leads now.
  bool campaign() {
    try {
      const auto found = client_.ask("/v3/kv/range", {{"key", to_base64(leader_key())}}, limits_.step_down);
      if (const auto leaders = keys_in(found); !leaders.empty()) {
        if (!standby_)
          throw rival{bytes_in(*leaders.front(), "value")};
        is_hindered_ = false;
        return false;
      }
      return stand();
    } catch (const rival& x) {
      throw std::runtime_error("another manager leads (" + printable(x.who, 200) +
                               "): end it, or start this one with --standby");
    } catch (const std::exception& e) {
      if (!standby_)
        throw;
      if (!std::exchange(is_hindered_, true))
        told_.waits(e.what());
      return false;
    }
  }

  struct rival {
    std::string who;
  };

  // An answer may be lost after etcd has done what was asked: the lease says whose key it is.
  bool stand() {
    const auto asked = steady_clock::now();
    lease_ = number_in(client_.ask("/v3/lease/grant", {{"TTL", limits_.lease.count()}}, limits_.step_down), "ID");
    if (lease_ == 0)
      throw std::runtime_error("etcd grants no lease");
    const auto key = to_base64(leader_key());
    const json::object nobody_leads{{"target", "CREATE"}, {"result", "EQUAL"}, {"key", key}, {"create_revision", "0"}};
    const json::object lead{
        {"request_put", {{"key", key}, {"value", to_base64(who_)}, {"lease", std::to_string(lease_)}}}};
    client_.ask("/v3/kv/txn", {{"compare", {nobody_leads}}, {"success", {lead}}}, limits_.step_down);
    const auto leaders = client_.ask("/v3/kv/range", {{"key", key}}, limits_.step_down);
    for (const auto* x : keys_in(leaders))
      if (number_in(*x, "lease") == lease_) {
        revision_ = number_in(*x, "create_revision");
        term_.begins(asked);
        return true;
      }
    give_back();
    return false;
  }

  void renew() {
    const auto asked = steady_clock::now();
    const auto left = term_.left(asked);
    if (left <= milliseconds(0))
      throw std::runtime_error("it stood still, and another manager may lead");
    json::object answer;
    try {
      answer = client_.ask("/v3/lease/keepalive", {{"ID", std::to_string(lease_)}}, left);
    } catch (const std::exception& e) {
      throw std::runtime_error("its lease could not be renewed (" + std::string(e.what()) + ")");
    }
    const auto* result = answer.if_contains("result");
    if (!result || !result->is_object() || number_in(result->get_object(), "TTL") <= 0)
      throw std::runtime_error("its lease is over, and another manager may lead");
    term_.begins(asked);
  }

  void give_back() {
    try {
      client_.ask("/v3/lease/revoke", {{"ID", std::to_string(std::exchange(lease_, 0))}}, milliseconds(1000));
    } catch (const std::exception&) {
      // It ends by itself.
    }
  }

  const etcd_place place_;
  const std::string who_;
  const bool standby_;
  const lead_listener told_;
  const lead_limits limits_;
  etcd_client client_; ///< of the thread
  const std::shared_ptr<std::atomic<bool>> is_over_ = std::make_shared<std::atomic<bool>>(false);
  bool is_hindered_ = false;  ///< since it last saw that somebody leads
  std::int64_t lease_ = 0;    ///< 0: none
  std::int64_t revision_ = 0; ///< of the key by which it leads; set before told_.leads
  lead_term term_{limits_};
  std::jthread thread_; ///< last: it uses the others
};

etcd_leadership::etcd_leadership(etcd_place place, std::string who, bool standby, lead_listener told,
                                 lead_limits limits) :
    implementation_(
        std::make_unique<implementation>(std::move(place), std::move(who), standby, std::move(told), limits)) {}

etcd_leadership::~etcd_leadership() = default;

std::unique_ptr<journal_store> etcd_leadership::journal() const {
  return implementation_->journal();
}

} // namespace parcae
