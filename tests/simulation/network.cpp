#include "tests/simulation/network.hpp"

#include "protocols/wire/actors.hpp"
#include "protocols/wire/type_ids.hpp"

#include <caf/actor_cast.hpp>
#include <caf/actor_proxy.hpp>
#include <caf/exit_reason.hpp>
#include <caf/make_actor.hpp>
#include <caf/message.hpp>

#include <algorithm>
#include <utility>

namespace parcae::simulation {

namespace {

/// An actor of another process.
class remote_actor final : public caf::actor_proxy {
public:
  remote_actor(caf::actor_config& cfg, network& net, connection_ptr c, int end, caf::strong_actor_ptr target) :
      caf::actor_proxy(cfg), network_(net), connection_(std::move(c)), end_(end), target_(std::move(target)) {}

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) override {
    if (const auto c = connection_.lock(); c && what)
      network_.send(c, 1 - end_, target_, std::move(what));
  }

  void kill_proxy(caf::execution_unit* context, caf::error reason) override {
    cleanup(std::move(reason), context);
    target_ = nullptr;
  }

private:
  network& network_;
  std::weak_ptr<connection> connection_;
  int end_;
  caf::strong_actor_ptr target_;
};

} // namespace

nanoseconds network::delay() {
  auto& chance = engine_.chance();
  return chance.below(100) == 0 ? chance.between(options_.usual, options_.most)
                                : chance.between(options_.least, options_.usual);
}

void network::listen(const process_ptr& manager, const caf::strong_actor_ptr& front, std::set<std::string> interface) {
  listeners_[manager->name] = {manager, front, std::move(interface), {}};
}

caf::strong_actor_ptr network::name_at(const connection_ptr& c, int end, const caf::strong_actor_ptr& target) {
  if (!target)
    return nullptr;
  auto& known = c->proxies[static_cast<std::size_t>(end)][target->id()];
  if (!known) {
    caf::actor_config cfg;
    known = caf::make_actor<remote_actor, caf::strong_actor_ptr>(
        target->id(), c->ends[static_cast<std::size_t>(1 - end)]->node, &engine_.system(), cfg, *this, c, end, target);
  }
  return known;
}

void network::dial(const process_ptr& node, const std::string& place, std::function<void(answer)> tell) {
  for (const auto& c : connections_)
    if (c->ends[0] == node && c->ends[1]->name == place && c->open[0]) // the transport still has it
      return tell({{}, name_at(c, 0, c->front), listeners_[place].interface});
  const auto once = std::make_shared<std::function<void(answer)>>(std::move(tell));
  engine_.after(delay(), [=, this] {
    const auto fail = [=, this](nanoseconds after, caf::sec why) {
      engine_.after(node, after, [once, why] {
        if (const auto tell = std::exchange(*once, {}))
          tell({caf::make_error(why), nullptr, {}});
      });
    };
    if (cut_.contains(node->name))
      return fail(options_.dial_limit, caf::sec::connection_timeout);
    auto& there = listeners_[place];
    if (!there.manager || !there.manager->alive || !there.front)
      return fail(1ms, caf::sec::cannot_connect_to_node);
    engine_.after(there.manager, 0ns, [=, this] { accept(node, place, once); }); // later, if it stands still
    there.knocking.emplace_back([=] { fail(1ms, caf::sec::disconnect_during_handshake); });
    fail(options_.dial_limit, caf::sec::connection_timeout);
  });
}

void network::accept(const process_ptr& node, const std::string& place,
                     const std::shared_ptr<std::function<void(answer)>>& tell) {
  const auto& there = listeners_[place];
  if (!*tell || !node->alive || !there.front)
    return;
  for (const auto& c : std::vector(connections_)) // the manager learns that the one before is over
    if (c->ends[0] == node && c->ends[1]->name == place)
      close(c, 1);
  const auto c = connections_.emplace_back(std::make_shared<connection>());
  c->ends = {node, there.manager};
  c->front = there.front;
  engine_.after(node, delay(), [=, this] {
    const auto once = std::exchange(*tell, {});
    if (!once)
      close(c, 0);
    else if (c->open[0])
      once({{}, name_at(c, 0, c->front), listeners_[place].interface});
    else
      once({caf::make_error(caf::sec::disconnect_during_handshake), nullptr, {}});
  });
}

void network::close(const connection_ptr& c, int end) {
  const auto at = static_cast<std::size_t>(end);
  if (!std::exchange(c->open[at], false))
    return;
  for (const auto& [id, proxy] : std::exchange(c->proxies[at], {}))
    static_cast<caf::actor_proxy*>(caf::actor_cast<caf::abstract_actor*>(proxy))
        ->kill_proxy(nullptr, caf::exit_reason::remote_link_unreachable);
  c->under_way[at].clear(); // what it would have heard
  if (!c->open[1 - at]) {
    c->front = nullptr;
    std::erase(connections_, c);
  } else if (!c->cut && c->ends[at]->alive && !c->ends[at]->frozen) { // it says so
    engine_.after(delay(), [=, this] {
      if (!c->cut)
        close(c, 1 - end);
    });
  }
}

// That end gives the connection up if it is still silent by then.
void network::expect_silence(const connection_ptr& c, int end, const std::function<bool()>& still) {
  engine_.after(c->ends[static_cast<std::size_t>(end)], options_.silence + engine_.chance().between(0ms, 500ms),
                [=, this] {
                  if (still())
                    close(c, end);
                });
}

void network::lose(const process_ptr& p, bool silently) {
  if (const auto known = listeners_.find(p->name); known != listeners_.end() && known->second.manager == p) {
    known->second.front = nullptr;
    for (const auto& fail : std::exchange(known->second.knocking, {})) // its kernel says so
      fail();
  }
  for (const auto& c : std::vector(connections_))
    for (const int end : {0, 1})
      if (c->ends[static_cast<std::size_t>(end)] == p) {
        close(c, end);
        if (silently || c->cut)
          expect_silence(c, 1 - end, [] { return true; });
        else
          engine_.after(delay(), [=, this] { close(c, 1 - end); });
      }
}

void network::freeze(const process_ptr& p) {
  const auto since = p->frozen_at;
  for (const auto& c : connections_)
    for (const int end : {0, 1})
      if (c->ends[static_cast<std::size_t>(end)] == p)
        expect_silence(c, 1 - end, [p, since] { return p->frozen && p->frozen_at == since; });
}

// What its peers gave up meanwhile is waiting for it.
void network::thaw(const process_ptr& p) {
  for (const auto& c : std::vector(connections_))
    for (const int end : {0, 1})
      if (const auto at = static_cast<std::size_t>(end); c->ends[at] == p && !c->open[1 - at] && !c->cut)
        engine_.after(p, delay(), [=, this] { close(c, end); });
}

void network::cut(const process_ptr& node) {
  cut_.insert(node->name);
  for (const auto& c : connections_)
    if (c->ends[0] == node && !std::exchange(c->cut, true)) {
      const auto number = ++c->cuts;
      for (const int end : {0, 1})
        expect_silence(c, end, [c, number] { return c->cut && c->cuts == number; });
    }
}

void network::heal(const process_ptr& node) {
  cut_.erase(node->name);
  for (const auto& c : std::vector(connections_))
    if (c->ends[0] == node && std::exchange(c->cut, false))
      for (const std::size_t end : {0, 1}) {
        if (!c->open[end])
          engine_.after(c->ends[1 - end], delay(), [=, this] { close(c, static_cast<int>(1 - end)); });
        for (auto left = std::exchange(c->due[end], 0); left > 0; --left)
          engine_.after(delay(), [=, this] { take_next(c, end); });
      }
}

void network::reset(const process_ptr& node) {
  for (const auto& c : std::vector(connections_))
    if (c->ends[0] == node)
      for (const int end : {0, 1})
        engine_.after(delay(), [=, this] { close(c, end); });
}

void network::sever(const process_ptr& node) {
  engine_.after(0ns, [=, this] {
    for (const auto& c : std::vector(connections_))
      if (c->ends[0] == node)
        for (const int end : {0, 1})
          close(c, end);
  });
}

bool network::connected(const process_ptr& node) const {
  return std::ranges::any_of(connections_,
                             [&](const auto& c) { return c->ends[0] == node && c->open[0] && c->open[1]; });
}

void network::send(const connection_ptr& c, int to, const caf::strong_actor_ptr& target,
                   caf::mailbox_element_ptr what) {
  const auto at = static_cast<std::size_t>(to);
  if (!c->open[1 - at] || !c->ends[1 - at]->alive)
    return;
  const auto content = what->move_content_to_message();
  for (const auto& x : on_message ? on_message(*c, to, content) : std::vector{content}) {
    c->under_way[at].push_back({target, what->sender, what->mid, x});
    c->arrival[at] = std::max(c->arrival[at], engine_.now() + delay());
    engine_.at(c->arrival[at], [=, this] { take_next(c, at); });
  }
}

void network::take_next(const connection_ptr& c, std::size_t to) {
  if (c->cut) {
    ++c->due[to];
  } else if (!c->under_way[to].empty()) {
    auto x = std::move(c->under_way[to].front());
    c->under_way[to].pop_front();
    deliver(c, static_cast<int>(to), x.target, x.from, x.id, std::move(x.what));
  }
}

void network::deliver(const connection_ptr& c, int to, const caf::strong_actor_ptr& target,
                      const caf::strong_actor_ptr& from, caf::message_id id, caf::message what) {
  const auto at = static_cast<std::size_t>(to);
  if (!c->open[at] || !c->ends[at]->alive)
    return;
  if (on_arrival)
    on_arrival(*c, to, what);
  const auto sender = name_at(c, to, from);
  target->enqueue(caf::make_mailbox_element(sender, id, {}, renamed(c, to, std::move(what))), nullptr);
}

// The handles in a message, as the receiver names them.
caf::message network::renamed(const connection_ptr& c, int to, caf::message what) {
  const auto name = [&](const auto& handle) {
    using handle_type = std::decay_t<decltype(handle)>;
    return caf::actor_cast<handle_type>(name_at(c, to, caf::actor_cast<caf::strong_actor_ptr>(handle)));
  };
  if (what.match_elements<hello, instance_actor, std::vector<slot_actor>>()) {
    std::vector<slot_actor> slots;
    for (const auto& x : what.get_as<std::vector<slot_actor>>(2))
      slots.push_back(name(x));
    return caf::make_message(what.get_as<hello>(0), name(what.get_as<instance_actor>(1)), std::move(slots));
  }
  if (what.match_elements<attach_atom, addressee, report_sink>())
    return caf::make_message(attach_atom_v, what.get_as<addressee>(1), name(what.get_as<report_sink>(2)));
  return what;
}

} // namespace parcae::simulation
