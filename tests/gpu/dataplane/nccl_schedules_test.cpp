// What survivors say, whatever is lost or stands still, in whichever call.

#include "tests/gpu/dataplane/nccl_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

using namespace parcae;
using namespace parcae::testing;
using ::testing::IsEmpty;

namespace {

using phase = nccl_communicator::phase;
using steady = std::chrono::steady_clock;

constexpr std::uint32_t width = 3;
constexpr std::uint32_t rounds = 4;

/// What became of a participant.
enum class end_of { done, stayed_below, aborted, process, killed };

struct schedule {
  explicit schedule(std::uint64_t seed) {
    std::mt19937_64 draw(seed * 2654435761u + 17);
    rank = static_cast<std::uint32_t>(draw() % width);
    where = static_cast<nccl_call>(draw() % nccl_calls);
    if (where == nccl_call::make_id)
      rank = 0;
    const bool once = where == nccl_call::make_id || where == nccl_call::begin || where == nccl_call::abort;
    nth = once ? 1 : 1 + draw() % (where == nccl_call::state ? 60 : 20);
    what = static_cast<nccl_fault>(draw() % 4);
    aborts_hang = draw() % 5 == 0;
  }

  std::uint32_t rank;
  nccl_call where;
  std::uint64_t nth;
  nccl_fault what;
  bool aborts_hang; ///< of another participant
};

/// Participants of one generation after the other, on devices of their own.
class lane {
public:
  explicit lane(std::uint32_t number) : number_(number) {}

  /// Without a schedule nothing fails.
  std::array<end_of, width> run(std::uint64_t seed, const schedule* planned) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    nccl_double world(seed);
    ++ports_.plan.next.value;
    begin(world);
    if (planned) {
      world.plan(planned->rank, planned->where, planned->nth, planned->what);
      if (planned->aborts_hang)
        world.plan((planned->rank + 1) % width, nccl_call::abort, 1, nccl_fault::freeze);
      world.on_fault([&] {
        if (planned->what == nccl_fault::die && !killed_.exchange(true)) {
          dead_ = planned->rank;
          const std::lock_guard held(mutexes_[planned->rank]);
          if (auto& x = *members_[planned->rank]; x.comm) // else it ends, and closes them itself
            x.die();
        }
        faulty_ = true;
      });
    }
    std::atomic<bool> over = false;
    std::thread conductor([&] { // tells all to abort a while after something went wrong, as it would be told
      eventually([&] { return over || faulty_; });
      if (over)
        return;
      std::this_thread::sleep_for(100ms);
      aborted_ = true;
      for (std::uint32_t i = 0; i < width; ++i) {
        const std::lock_guard held(mutexes_[i]);
        if (members_[i]->comm)
          members_[i]->comm->abort(); // of who is dead, too: its thread is this process's
      }
    });
    std::array<end_of, width> ends;
    ports_.each([&](std::uint32_t i) { ends[i] = take_part(seed, i); });
    over = true;
    conductor.join();
    world.release();
    for (std::uint32_t i = 0; i < width; ++i)
      end(i);
    EXPECT_TRUE(
        eventually([&] { return std::ranges::none_of(members_, [](const auto& x) { return x->slot->busy.load(); }); }));
    for (const auto& x : members_)
      EXPECT_TRUE(x->slot->on.compute().record()->wait(patience)) << "work is left";
    members_.clear();
    EXPECT_THAT(world.violations(), IsEmpty());
    EXPECT_GE(failed_makings_->failed(), world.listeners()) << "what NCCL has left is not counted";
    return ends;
  }

private:
  void begin(nccl_double& world) {
    made_ = failed_ = 0;
    aborted_ = faulty_ = killed_ = false;
    dead_ = width;
    failed_makings_ = std::make_shared<nccl_allowance>();
    for (std::uint32_t i = 0; i < width; ++i) {
      stuck_[i] = false;
      auto slot = std::make_shared<nccl_slot>(late_fake_device(number_ * width + i), world.library(i),
                                              [this, i](const std::string&) { stuck_[i] = true; });
      slot->limits = {400ms, 300ms};
      members_.push_back(std::make_unique<nccl_member>(ports_, i, std::move(slot), failed_makings_));
    }
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
    auto since = steady::time_point::max(); ///< when it knew
    try {
      {
        const std::lock_guard held(mutexes_[i]);
        me.connect();
      }
      const bool made = me.comm->wait_until_made().now == phase::ready;
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
      since = steady::now();
    }
    if (i == dead_)
      return end_of::killed;                  // its process is gone, and what it has stays as it is
    if (result == end_of::aborted && me.comm) // else it was not connected when another died
      me.comm->abort();
    const auto begin = std::min(since, steady::now());
    end(i);
    if (stuck_[i])
      result = end_of::process;
    else
      EXPECT_TRUE(me.slot->on.compute().record()->wait(2s)) << "participant " << i << " cannot say that it has aborted";
    EXPECT_LT(steady::now() - begin, 2s) << "participant " << i;
    if (i == dead_)
      return end_of::killed;
    return result;
  }

  /// Some messages between all, each participant in an order of its own.
  void exchange_round(nccl_member& me, std::uint64_t seed, std::uint32_t i, std::uint32_t round) {
    struct action {
      std::uint32_t peer;
      bool sends;
      std::uint32_t left;
    };
    std::vector<action> ways;
    for (std::uint32_t peer = 0; peer < width; ++peer)
      for (const bool sends : {true, false})
        if (peer != i) {
          std::mt19937_64 both(((seed * 16 + round) * 16 + (sends ? i : peer)) * 16 + (sends ? peer : i));
          ways.push_back({peer, sends, static_cast<std::uint32_t>(both() % 4)});
        }
    std::mt19937_64 own(seed * 64 + round * 8 + i);
    std::vector<ticket> tickets;
    while (!ways.empty()) {
      auto& way = ways[own() % ways.size()];
      if (way.left == 0) {
        way = ways.back();
        ways.pop_back();
        continue;
      }
      const auto index = --way.left;
      tickets.push_back(me.post(round, way.peer, way.sends, index, (seed + round * 7919 + index * 104'729) % 20'000));
    }
    std::ranges::shuffle(tickets, own);
    for (const auto& x : tickets)
      me.comm->wait(x, patience);
    me.compare(aborted_);
  }

  const std::uint32_t number_;
  cluster ports_{width};
  std::shared_ptr<nccl_allowance> failed_makings_;
  std::vector<std::unique_ptr<nccl_member>> members_;
  std::array<std::mutex, width> mutexes_; ///< guard `comm` of the members
  std::array<std::atomic<bool>, width> stuck_{};
  std::atomic<std::uint32_t> made_ = 0, failed_ = 0, dead_ = width;
  std::atomic<bool> aborted_ = false, faulty_ = false, killed_ = false;
};

std::size_t count_of(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// That is given out of the devices, in bytes.
std::vector<std::uint64_t> memory_taken(std::uint32_t devices) {
  std::vector<std::uint64_t> result;
  for (std::uint32_t i = 0; i < devices; ++i) {
    auto& x = late_fake_device(i);
    x.begin_peak();
    result.push_back(x.peak_bytes());
  }
  return result;
}

} // namespace

// given: 500 schedules: in some call of one participant it dies, stands still, or NCCL fails, and at times another's
// abort does not return / expected: each survivor has aborted, or says that its process has to end, within 2 s; what
// check() has let pass is right; nothing is left behind, and NCCL was never used as it must not be
TEST(nccl_schedules, every_survivor_aborts) {
  constexpr std::uint32_t lanes = 4;
  constexpr std::uint64_t schedules = 500;
  std::vector<std::unique_ptr<lane>> all;
  for (std::uint32_t i = 0; i < lanes; ++i)
    all.push_back(std::make_unique<lane>(i));
  std::map<end_of, int> ends;
  for (const auto& x : all)
    for (const auto end : x->run(1, nullptr))
      EXPECT_EQ(end, end_of::done);
  // Threads that were joined are there for another moment.
  auto threads = count_of("/proc/self/task");
  for (auto since = steady::now(); steady::now() - since < 200ms; std::this_thread::yield())
    if (const auto now = count_of("/proc/self/task"); now != threads)
      threads = now, since = steady::now();
  const auto files = count_of("/proc/self/fd");
  const auto memory = memory_taken(lanes * width);

  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  const auto work = [&](lane& on) {
    for (std::uint64_t seed; (seed = next++) < schedules;) {
      const schedule planned(seed);
      const auto result = on.run(seed, &planned);
      const std::lock_guard held(mutex);
      for (const auto end : result)
        ++ends[end];
    }
  };
  std::vector<std::future<void>> under_way;
  for (const auto& x : all)
    under_way.push_back(std::async(std::launch::async, [&] { work(*x); }));
  for (auto& x : under_way)
    x.get();
  EXPECT_TRUE(eventually([&] { return count_of("/proc/self/task") == threads; }))
      << count_of("/proc/self/task") << " threads, " << threads << " before";
  EXPECT_TRUE(eventually([&] { return count_of("/proc/self/fd") == files; }))
      << count_of("/proc/self/fd") << " descriptors, " << files << " before";
  EXPECT_EQ(memory_taken(lanes * width), memory);
  std::cout << "done " << ends[end_of::done] << ", stayed below " << ends[end_of::stayed_below] << ", aborted "
            << ends[end_of::aborted] << ", process to end " << ends[end_of::process] << ", killed "
            << ends[end_of::killed] << "\n";
  for (const auto x : {end_of::done, end_of::stayed_below, end_of::aborted, end_of::process, end_of::killed})
    EXPECT_GT(ends[x], 20) << "no test of it";
}
