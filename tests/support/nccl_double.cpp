#include "tests/support/nccl_double.hpp"

#include "tests/support/fake_device.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

namespace parcae::rig {

namespace {

using hold = std::unique_lock<std::mutex>;

/// That each call takes at least: those that work, not those that only note what is to be done.
constexpr std::array<std::chrono::microseconds::rep, nccl_calls> microseconds_of{0, 1000, 0, 0, 10, 0, 0, 1000};

} // namespace

class nccl_double::world {
  friend nccl_double;

  struct communicator;

  struct operation {
    bool sends;
    std::uint32_t peer;
    std::byte* bytes;
    std::size_t n;
    bool garbled = false;
    std::function<bool()> is_lost = {}; ///< its memory was given back
  };

  struct group {
    std::vector<operation> operations;
    stream* on = nullptr;
    std::thread::id thread = std::this_thread::get_id();
    bool failed = false;                              ///< a call within it
    std::uint64_t events = 0;                         ///< of the stream, when the group was ended
    std::map<std::uint32_t, const group*> other_ends; ///< by participant
  };

  struct participant final : nccl_library {
    participant(world& of, std::uint32_t number, device& computes_on) : world_(of), rank(number), on(computes_on) {}

    nccl_result make_id(nccl_id& id) override { return call(nccl_call::make_id, &world::make_id, id); }
    nccl_result begin(nccl_handle*& made, std::uint32_t ranks, const nccl_id& id, std::uint32_t as) override {
      return call(nccl_call::begin, &world::begin, made, ranks, id, as);
    }
    nccl_result state(nccl_handle* x) override { return call(nccl_call::state, &world::state, x); }
    nccl_result start_group() override { return call(nccl_call::start_group, &world::start_group); }
    nccl_result end_group() override { return call(nccl_call::end_group, &world::end_group); }
    nccl_result send(nccl_handle* x, std::uint32_t to, const void* bytes, std::size_t n, stream& on) override {
      auto* from = static_cast<std::byte*>(const_cast<void*>(bytes));
      return call(nccl_call::send, &world::add, x, operation{true, to, from, n}, on);
    }
    nccl_result receive(nccl_handle* x, std::uint32_t from, void* bytes, std::size_t n, stream& on) override {
      return call(nccl_call::receive, &world::add, x, operation{false, from, static_cast<std::byte*>(bytes), n}, on);
    }
    nccl_result abort(nccl_handle* x) override { return call(nccl_call::abort, &world::abort, x); }
    std::string last_error(nccl_handle*) override {
      const hold held(world_.mutex_);
      return error;
    }

    template <class F, class... Arguments>
    nccl_result call(nccl_call which, F f, Arguments&&... x) {
      return world_.call(*this, which, [&] { return (world_.*f)(*this, std::forward<Arguments>(x)...); });
    }

    world& world_;
    const std::uint32_t rank;
    device& on;
    std::string error = "the double says so"; ///< the last
    std::size_t calling = 0;
    bool dead = false;
    std::array<std::uint64_t, nccl_calls> calls{};
    std::shared_ptr<group> open;
    communicator* open_on = nullptr;
    std::vector<std::shared_ptr<communicator>> communicators;
  };

  struct communicator {
    participant* by;
    std::uint64_t id;
    std::uint32_t rank;
    nccl_result now = nccl_result::in_progress;
    bool spoiled = false, aborted = false;
    std::thread::id thread = std::this_thread::get_id();
    std::vector<device_memory> memory{};
    std::set<std::uint32_t> peers{}; ///< with which it is connected
    std::shared_ptr<group> coming{}; ///< ended, and not yet in the stream
  };

  /// An operation whose turn in its stream has come.
  struct transfer {
    communicator* owner;
    group* of;
    operation what;
    bool done = false;
  };

public:
  explicit world(std::uint64_t seed) : draw_(seed) {}

  ~world() {
    release();
    hold held(mutex_);
    changed_.wait(held, [&] { return busy_ == 0; });
  }

  void release() {
    const hold held(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  /// A call of a participant: what is common to all of them, then f, under the mutex.
  template <class F>
  nccl_result call(participant& by, nccl_call which, F f) {
    hold held(mutex_);
    ++busy_;
    if (by.calling++ > 0)
      note("two calls of one participant at once");
    if (const auto time = microseconds_of[static_cast<std::size_t>(which)]; time > 0) {
      held.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(time));
      held.lock();
    }
    if (!released_)
      do_what_is_due();
    const auto n = ++by.calls[static_cast<std::size_t>(which)];
    auto result = nccl_result::internal_error;
    std::optional<nccl_fault> fault;
    if (const auto found = planned_.find({by.rank, which});
        found != planned_.end() && found->second.at == n && !released_)
      fault = found->second.what;
    if (fault) {
      by.dead |= fault == nccl_fault::die;
      const auto tell = on_fault_;
      held.unlock();
      if (tell)
        tell(by.rank, which);
      held.lock();
    }
    if (by.dead || fault == nccl_fault::freeze)
      changed_.wait(held, [&] { return released_; });
    else if (fault == nccl_fault::fail)
      result = nccl_result::system_error;
    else if (!released_)
      result = f();
    if (fault == nccl_fault::fail && which == nccl_call::end_group)
      by.open.reset();
    else if (fault == nccl_fault::fail && by.open)
      by.open->failed = true;
    if (fault == nccl_fault::garble && by.open)
      by.open->operations.back().garbled = true;
    if (fault == nccl_fault::spoil)
      for (const auto& x : by.communicators)
        x->spoiled = true;
    --by.calling;
    --busy_;
    changed_.notify_all();
    return result;
  }

  nccl_result make_id(participant&, nccl_id& id) {
    id = {};
    const auto number = ++ids_;
    std::memcpy(id.data(), &number, sizeof number);
    return nccl_result::success;
  }

  nccl_result begin(participant& by, nccl_handle*& made, std::uint32_t ranks, const nccl_id& id, std::uint32_t rank) {
    const auto& x = by.communicators.emplace_back(new communicator{.by = &by, .id = 0, .rank = rank});
    std::memcpy(&x->id, id.data(), sizeof x->id);
    made = reinterpret_cast<nccl_handle*>(x.get());
    later([this, x = x, ranks] { join(x, ranks); });
    return nccl_result::in_progress;
  }

  nccl_result state(participant&, nccl_handle* of) {
    auto& x = at(of);
    return x.spoiled ? nccl_result::remote_error : x.now;
  }

  nccl_result start_group(participant& by) {
    if (by.open)
      note("a group in a group");
    by.open = std::make_shared<group>();
    by.open_on = nullptr;
    return nccl_result::success;
  }

  nccl_result add(participant& by, nccl_handle* of, operation x, stream& on) {
    auto& to = at(of);
    if (!by.open) {
      note("an operation in no group");
      return nccl_result::invalid_usage;
    }
    if (to.now != nccl_result::success)
      note("an operation while the one before is in progress");
    if (by.open_on && (by.open_on != &to || by.open->on != &on))
      note("a group of two communicators or streams");
    by.open_on = &to;
    by.open->on = &on;
    x.is_lost = given_back_since(x.bytes, x.n);
    by.open->operations.push_back(x);
    return nccl_result::success;
  }

  nccl_result end_group(participant& by) {
    const auto g = std::exchange(by.open, nullptr);
    if (g && g->failed)
      return nccl_result::system_error;
    if (!g || !by.open_on) {
      note("the end of no group");
      return nccl_result::invalid_usage;
    }
    if (g->thread != std::this_thread::get_id())
      note("calls of several threads");
    const auto x = *std::ranges::find(by.communicators, by.open_on, &std::shared_ptr<communicator>::get);
    g->events = events_of(*g->on);
    x->now = nccl_result::in_progress;
    x->coming = g;
    later([this, x, g] { issue(x, g); });
    return nccl_result::in_progress;
  }

  nccl_result abort(participant&, nccl_handle* of) {
    auto& x = at(of);
    if (x.aborted)
      note("a second abort");
    if (x.by->open)
      note("an abort in a group, of which it would be a part");
    x.aborted = true;
    x.memory.clear();
    if (const auto cut_off = std::exchange(x.coming, nullptr))
      std::ranges::for_each(cut_off->operations, [this](const auto& y) { end(y); });
    return nccl_result::success;
  }

  std::uint64_t count(std::uint32_t rank, nccl_call which) {
    const auto found = participants_.find(rank);
    return found == participants_.end() ? 0 : found->second.calls[static_cast<std::size_t>(which)];
  }

  mutable std::mutex mutex_; ///< guards all
  std::condition_variable changed_;
  std::function<void(std::uint32_t, nccl_call)> on_fault_;
  std::set<std::string> violations_;
  std::uint64_t ids_ = 0;
  std::set<std::uint64_t> made_; ///< ids with which all have begun
  std::map<std::uint64_t, std::set<std::pair<std::uint32_t, std::uint32_t>>> connected_; ///< by id

private:
  using way = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>; ///< id, from, to
  using queues = std::array<std::deque<transfer*>, 2>;                 ///< of receives, and of sends
  struct planned_fault {
    std::uint64_t at;
    nccl_fault what;
  };
  using clock = std::chrono::steady_clock;

  void note(const std::string& what) { violations_.insert(what); }

  communicator& at(nccl_handle* x) {
    auto& result = *reinterpret_cast<communicator*>(x);
    if (result.thread != std::this_thread::get_id())
      note("calls of several threads");
    if (result.aborted)
      note("a call after abort");
    return result;
  }

  /// With the next call of anybody, or a little later.
  void later(std::function<void()> f) {
    const auto pause = std::chrono::microseconds(draw_() % 2 ? draw_() % 800 : 0);
    late_.emplace(clock::now() + pause, std::move(f));
  }
  void do_what_is_due() {
    while (!late_.empty() && late_.begin()->first <= clock::now())
      late_.extract(late_.begin()).mapped()();
  }

  void join(const std::shared_ptr<communicator>& x, std::uint32_t ranks) {
    if (x->aborted || x->by->dead || !take(*x, nccl_own_bytes))
      return;
    auto& begun = begun_[x->id];
    begun.push_back(x);
    if (begun.size() < ranks)
      return;
    made_.insert(x->id);
    for (const auto& y : begun)
      y->now = nccl_result::success;
  }

  /// False: the device is full, and that is said as NCCL says it.
  bool take(communicator& x, std::size_t bytes) {
    try {
      x.memory.push_back(x.by->on.allocate(bytes));
      return true;
    } catch (const device_error&) {
      x.by->error = "Failed to CUDA malloc " + std::to_string(bytes) + " bytes";
      x.now = nccl_result::cuda_error;
      return false;
    }
  }

  /// With the other ends of a group, as far as it is not yet.
  bool connect(communicator& x, const group& g) {
    return std::ranges::all_of(g.operations, [&](const auto& y) {
      if (x.peers.contains(y.peer))
        return true;
      x.peers.insert(y.peer);
      connected_[x.id].emplace(x.rank, y.peer);
      return take(x, nccl_pair_bytes);
    });
  }

  void issue(const std::shared_ptr<communicator>& x, const std::shared_ptr<group>& g) {
    if (x->aborted || x->by->dead || !connect(*x, *g))
      return;
    x->coming.reset();
    if (events_of(*g->on) != g->events)
      note("an event was recorded before the group was in the stream");
    x->now = nccl_result::success;
    ++busy_;
    give_work(*g->on, [this, x, g] { move(*x, *g); });
  }

  way way_of(const communicator& x, const operation& y) const {
    return y.sends ? way{x.id, x.rank, y.peer} : way{x.id, y.peer, x.rank};
  }

  /// On the stream's thread. Waits for the other ends.
  void move(communicator& x, group& g) {
    hold held(mutex_);
    std::deque<transfer> transfers;
    for (const auto& y : g.operations) {
      auto& t = transfers.emplace_back(transfer{&x, &g, y});
      ways_[way_of(x, y)][y.sends].push_back(&t);
    }
    for (const auto& t : transfers)
      match(way_of(x, t.what));
    changed_.wait(held, [&] {
      return x.aborted || released_ || std::ranges::all_of(transfers, [](const auto& t) { return t.done; });
    });
    for (auto& t : transfers) {
      if (t.done)
        continue;
      std::erase(ways_[way_of(x, t.what)][t.what.sends], &t);
      end(t.what);
      if (!t.what.sends) // with a part of what it should be
        std::memset(memory_of(t), 0x5A, (t.what.n + 1) / 2);
    }
    --busy_;
    changed_.notify_all();
  }

  std::byte* memory_of(const transfer& t) { return static_cast<std::byte*>(readable(t.what.bytes)); }

  /// It is moved, or cut off.
  void end(const operation& x) {
    if (x.is_lost())
      note("memory that was given back before it was moved");
  }

  void match(const way& x) {
    auto& [receives, sends] = ways_[x];
    while (!sends.empty() && !receives.empty()) {
      auto &from = *sends.front(), &to = *receives.front();
      const auto gone = [](const transfer& t) { return t.owner->by->dead || t.owner->aborted; };
      if (gone(from) || gone(to))
        return;
      if (from.what.n != to.what.n)
        note("a send and a receive of different sizes");
      note_ends(from, to);
      note_ends(to, from);
      std::memcpy(memory_of(to), memory_of(from), std::min(from.what.n, to.what.n));
      if (from.what.garbled && to.what.n > 0) // of a float: four times as much, or a fourth
        memory_of(to)[std::min<std::size_t>(to.what.n, 4) - 1] ^= std::byte{1};
      end(from.what);
      end(to.what);
      from.done = to.done = true;
      sends.pop_front();
      receives.pop_front();
      changed_.notify_all();
    }
  }

  /// What one end has in one group the other has, too.
  void note_ends(transfer& here, const transfer& there) {
    const auto*& known = here.of->other_ends[there.owner->rank];
    if (known && known != there.of)
      note("groups whose ends differ");
    known = there.of;
  }

  std::mt19937_64 draw_;
  std::map<std::uint32_t, participant> participants_;
  std::map<std::pair<std::uint32_t, nccl_call>, planned_fault> planned_;
  std::map<std::uint64_t, std::vector<std::shared_ptr<communicator>>> begun_; ///< by id
  std::map<way, queues> ways_;
  std::multimap<clock::time_point, std::function<void()>> late_;
  std::size_t busy_ = 0; ///< calls, and work in streams
  bool released_ = false;
};

nccl_double::nccl_double(std::uint64_t seed) : world_(std::make_unique<world>(seed)) {}

nccl_double::~nccl_double() = default;

nccl_library& nccl_double::library(std::uint32_t rank, device& on) {
  const hold held(world_->mutex_);
  return world_->participants_.try_emplace(rank, *world_, rank, on).first->second;
}

void nccl_double::plan(std::uint32_t rank, nccl_call where, std::uint64_t nth, nccl_fault what) {
  const hold held(world_->mutex_);
  world_->planned_[{rank, where}] = {world_->count(rank, where) + nth, what};
}

void nccl_double::on_fault(std::function<void(std::uint32_t, nccl_call)> f) {
  const hold held(world_->mutex_);
  world_->on_fault_ = std::move(f);
}

void nccl_double::release() {
  world_->release();
}

std::vector<std::string> nccl_double::violations() {
  const hold held(world_->mutex_);
  return {world_->violations_.begin(), world_->violations_.end()};
}

std::size_t nccl_double::listeners() {
  const hold held(world_->mutex_);
  return world_->ids_ - world_->made_.size();
}

std::map<std::uint64_t, std::set<std::pair<std::uint32_t, std::uint32_t>>> nccl_double::connected() {
  const hold held(world_->mutex_);
  return world_->connected_;
}

std::uint64_t nccl_double::calls_of(std::uint32_t rank, nccl_call which) {
  const hold held(world_->mutex_);
  return world_->count(rank, which);
}

} // namespace parcae::rig
