// What survivors say, whatever is lost or stands still, in whichever call.

#include "tests/gpu/dataplane/nccl_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

using namespace parcae;
using namespace parcae::rig;
using ::testing::IsEmpty;

namespace {

using phase = nccl_communicator::phase;
using steady = std::chrono::steady_clock;

constexpr std::uint32_t width = 3;
constexpr std::uint32_t rounds = 4;

/// What became of a participant.
enum class end_of { done, stayed_below, aborted, process, killed };

/// How often a participant makes each call, at least in most runs in which nothing fails.
constexpr std::array<std::uint64_t, nccl_calls> usual_calls{1, 1, 70, 13, 13, 12, 12, 1};

using fault_kind = std::pair<nccl_call, nccl_fault>;

/// All that makes a difference: a communicator that is not yet there, or not any more, cannot be spoilt.
std::vector<fault_kind> fault_kinds() {
  std::vector<fault_kind> result;
  for (std::size_t i = 0; i < nccl_calls; ++i)
    for (const auto what : {nccl_fault::freeze, nccl_fault::die, nccl_fault::fail, nccl_fault::spoil}) {
      const auto where = static_cast<nccl_call>(i);
      if (what != nccl_fault::spoil || (where != nccl_call::make_id && where != nccl_call::abort))
        result.emplace_back(where, what);
    }
  return result;
}

struct schedule {
  explicit schedule(std::uint64_t seed) {
    std::mt19937_64 draw(seed * 2654435761u + 17);
    const auto kinds = fault_kinds();
    std::tie(where, what) = kinds[seed % kinds.size()];
    rank = where == nccl_call::make_id ? 0 : static_cast<std::uint32_t>(draw() % width);
    nth = 1 + draw() % usual_calls[static_cast<std::size_t>(where)];
    aborts_hang = draw() % 5 == 0;
    told_after = std::chrono::milliseconds(draw() % 100);
  }

  std::uint32_t rank;
  nccl_call where;
  std::uint64_t nth;
  nccl_fault what;
  bool aborts_hang;                     ///< of another participant
  std::chrono::milliseconds told_after; ///< all are to abort, from when a fault has come
};

struct outcome {
  std::array<end_of, width> ends;
  bool came;                         ///< what was planned
  std::chrono::milliseconds slowest; ///< of the survivors, from ABORT to its end
};

/// Participants of one generation, on devices of their own in each lane. Without a schedule nothing fails.
class generation_run {
public:
  outcome run(std::uint32_t lane, std::uint64_t seed, const schedule* planned) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    nccl_double world(seed);
    for (std::uint32_t i = 0; i < width; ++i) {
      auto& on = late_fake_device(lane * width + i);
      auto slot =
          std::make_shared<nccl_slot>(on, world.library(i, on), [this, i](const std::string&) { stuck_[i] = true; });
      slot->limits = {.make = 400ms, .id = 200ms, .end = 300ms};
      members_.push_back(std::make_unique<nccl_member>(ports_, i, std::move(slot)));
    }
    outcome result{};
    if (planned) {
      world.plan(planned->rank, planned->where, planned->nth, planned->what);
      if (planned->aborts_hang)
        world.plan((planned->rank + 1) % width, nccl_call::abort, 1, nccl_fault::freeze);
      world.on_fault([&](std::uint32_t rank, nccl_call) {
        if (rank == planned->rank && planned->what == nccl_fault::die)
          die(rank);
        const std::lock_guard held(mutex_);
        result.came |= rank == planned->rank;
        faulty_ = true;
        changed_.notify_all();
      });
    }
    std::thread conductor([&] {
      if (planned)
        tell_to_abort(planned->told_after);
    });
    ports_.each([&](std::uint32_t i) { result.ends[i] = take_part(seed, i); });
    {
      const std::lock_guard held(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    conductor.join();
    result.slowest = slowest_;
    world.release();
    for (std::uint32_t i = 0; i < width; ++i)
      end(i);
    EXPECT_TRUE(
        eventually([&] { return std::ranges::none_of(members_, [](const auto& x) { return x->slot->busy.load(); }); }));
    for (const auto& x : members_)
      EXPECT_TRUE(x->slot->on.compute().record()->wait(patience)) << "work is left";
    members_.clear();
    EXPECT_THAT(world.violations(), IsEmpty());
    return result;
  }

private:
  /// As a conductor does some time after a fault has come.
  void tell_to_abort(std::chrono::milliseconds pause) {
    {
      std::unique_lock held(mutex_);
      changed_.wait(held, [&] { return over_ || faulty_; });
      if (changed_.wait_for(held, pause, [&] { return over_; }))
        return;
      told_at_ = steady::now();
    }
    aborted_ = true;
    for (std::uint32_t i = 0; i < width; ++i) {
      const std::lock_guard held(mutexes_[i]);
      told_[i] = true;
      if (members_[i]->comm)
        members_[i]->comm->abort(); // of who is dead, too: its thread is this process's
    }
  }

  void die(std::uint32_t i) {
    dead_ = i;
    const std::lock_guard held(mutexes_[i]);
    if (auto& x = *members_[i]; x.comm) // else it ends, and closes them itself
      x.die();
  }

  void end(std::uint32_t i) {
    std::unique_ptr<nccl_communicator> ending;
    {
      const std::lock_guard held(mutexes_[i]);
      ending = std::move(members_[i]->comm);
    }
  }

  end_of take_part(std::uint64_t seed, std::uint32_t i) {
    auto& me = *members_[i];
    auto result = end_of::done;
    try {
      {
        const std::lock_guard held(mutexes_[i]);
        me.connect();
        if (told_[i])
          me.comm->abort();
      }
      exchange_round(me, seed, i, rounds); // by TCP, while NCCL's communicator is made
      const bool made = me.made().now == phase::ready;
      ++(made ? made_ : failed_); // what the commit exchange says in a job
      while (made_ + failed_ < width && !aborted_)
        std::this_thread::yield();
      if (made_ < width) {
        result = end_of::stayed_below;
      } else {
        me.comm->take_over();
        for (std::uint32_t round = 0; round < rounds; ++round)
          exchange_round(me, seed, i, round);
      }
    } catch (const communication_error&) {
      result = end_of::aborted;
    }
    if (i == dead_)
      return end_of::killed; // its process is gone, and what it has stays as it is
    const auto ended_itself = steady::now();
    if (result == end_of::aborted && me.comm) // else it was not connected when another died
      me.comm->abort();
    end(i);
    const auto* says = stuck_[i] ? "that its process has to end" : "that it has aborted";
    if (stuck_[i])
      result = end_of::process;
    else
      EXPECT_TRUE(me.slot->on.compute().record()->wait(2s)) << "participant " << i << " cannot say " << says;
    if (i == dead_)
      return end_of::killed;
    note_time(i, ended_itself, says);
    return result;
  }

  /// From when it was told to abort, or gave up or was done before.
  void note_time(std::uint32_t i, steady::time_point ended_itself, const char* says) {
    const auto now = steady::now();
    const std::lock_guard held(mutex_);
    const auto took = std::chrono::ceil<std::chrono::milliseconds>(now - std::min(ended_itself, told_at_));
    EXPECT_LT(took, 2s) << "participant " << i << " says late " << says;
    slowest_ = std::max(slowest_, took);
  }

  /// Some groups of two or of all, in an order that all know. Waited for by each in an order of its own.
  void exchange_round(nccl_member& me, std::uint64_t seed, std::uint32_t i, std::uint32_t round) {
    std::mt19937_64 both(seed * 16 + round);
    std::vector<ticket> tickets;
    std::uint32_t index = 0;
    for (auto groups = 2 + both() % 4; groups > 0; --groups) {
      const auto absent = both() % (width + 1); // nobody, if it is the last
      std::vector<ticket> group;
      for (std::uint32_t from = 0; from < width; ++from)
        for (std::uint32_t to = 0; to < width; ++to) {
          auto left = both() % 3;
          if (from == to || from == absent || to == absent)
            continue;
          for (; left > 0; --left, ++index)
            if (const auto bytes = (seed + round * 7919 + index * 104'729) % 20'000; i == from || i == to)
              group.push_back(me.post(round, i == from ? to : from, i == from, index, bytes));
        }
      me.comm->give(group);
      tickets.insert(tickets.end(), group.begin(), group.end());
    }
    std::mt19937_64 own(seed * 64 + round * 8 + i);
    std::ranges::shuffle(tickets, own);
    for (const auto& x : tickets)
      me.comm->wait(x, patience);
    me.compare(aborted_);
  }

  cluster ports_{width};
  std::vector<std::unique_ptr<nccl_member>> members_;
  std::array<std::mutex, width> mutexes_; ///< guard `comm` of the members, and told_
  std::array<bool, width> told_{};        ///< to abort
  std::array<std::atomic<bool>, width> stuck_{};
  std::atomic<std::uint32_t> made_ = 0, failed_ = 0, dead_ = width;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_; ///< guards the rest
  std::condition_variable changed_;
  bool faulty_ = false, over_ = false;
  steady::time_point told_at_ = steady::time_point::max(); ///< all of them; before that the end of time
  std::chrono::milliseconds slowest_{0};
};

/// Of the process: threads, descriptors, bytes of the host's pinned memory, and of each device's.
std::vector<std::uint64_t> taken(std::uint32_t devices) {
  std::vector<std::uint64_t> result;
  for (const auto* folder : {"/proc/self/task", "/proc/self/fd"})
    result.push_back(static_cast<std::uint64_t>(std::distance(std::filesystem::directory_iterator(folder), {})));
  result.push_back(pinned_bytes());
  for (std::uint32_t i = 0; i < devices; ++i) {
    late_fake_device(i).begin_peak();
    result.push_back(late_fake_device(i).peak_bytes());
  }
  return result;
}

} // namespace

// given: 500 schedules: in some call of one participant it dies, stands still, or NCCL fails, and at times another's
// abort does not return / expected: each survivor has aborted, or says that its process has to end, within 2 s of
// ABORT; what check() has let pass is right; no memory, thread or descriptor is left, NCCL was never used as it must
// not be, and faults of all kinds have come in all calls
TEST(nccl_schedules, every_survivor_aborts) {
  constexpr std::uint32_t lanes = fake_devices / width;
  constexpr std::uint64_t schedules = 500;
  std::map<end_of, int> ends;
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    for (const auto end : generation_run().run(lane, 1, nullptr).ends)
      EXPECT_EQ(end, end_of::done);
  auto before = taken(lanes * width);
  // Threads that were joined are there for another moment.
  for (auto since = steady::now(); steady::now() - since < 200ms; std::this_thread::yield())
    if (auto now = taken(lanes * width); now != before)
      before = std::move(now), since = steady::now();

  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  std::map<fault_kind, int> came;
  std::chrono::milliseconds slowest{0};
  const auto work = [&](std::uint32_t lane) {
    for (std::uint64_t seed; (seed = next++) < schedules;) {
      const schedule planned(seed);
      const auto result = generation_run().run(lane, seed, &planned);
      const std::lock_guard held(mutex);
      for (const auto end : result.ends)
        ++ends[end];
      came[{planned.where, planned.what}] += result.came ? 1 : 0;
      slowest = std::max(slowest, result.slowest);
    }
  };
  std::vector<std::future<void>> under_way;
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    under_way.push_back(std::async(std::launch::async, work, lane));
  for (auto& x : under_way)
    x.get();
  eventually([&] { return taken(lanes * width) == before; });
  EXPECT_EQ(taken(lanes * width), before) << "threads, descriptors, bytes";
  std::cout << "done, stayed below, aborted, process to end, killed:";
  for (const auto x : {end_of::done, end_of::stayed_below, end_of::aborted, end_of::process, end_of::killed}) {
    EXPECT_GT(ends[x], 20) << "no test of it";
    std::cout << ' ' << ends[x];
  }
  int all_came = 0;
  for (const auto& [where, what] : fault_kinds()) {
    EXPECT_GE((came[{where, what}]), 5) << "fault " << static_cast<int>(what) << " in call " << static_cast<int>(where);
    all_came += came[{where, what}];
  }
  EXPECT_GE(all_came, 400) << "of " << schedules;
  std::cout << "; slowest " << slowest.count() << " ms; " << all_came << " of " << schedules << " faults came\n";
}
