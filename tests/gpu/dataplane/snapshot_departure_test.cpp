// Snapshots that leave a device: what is sent, from which memory, and when the layers may be written to again.

#include "gpu/dataplane/snapshot_departure.hpp"
#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/fake_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <mutex>
#include <set>

namespace parcae {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t part_bytes = 100'000;

/// Keeps what it is given.
class kept_stream final : public snapshot_stream {
public:
  void send(std::shared_ptr<const snapshot> x) override {
    const std::lock_guard held(mutex_);
    got_ = std::move(x);
  }
  bool busy() const override { return false; }
  bool wait_until_idle(std::chrono::milliseconds) override { return true; }

  std::shared_ptr<const snapshot> take() {
    const std::lock_guard held(mutex_);
    return std::move(got_);
  }

private:
  std::mutex mutex_;
  std::shared_ptr<const snapshot> got_;
};

class snapshot_departure : public ::testing::Test {
protected:
  ~snapshot_departure() override { allow_pinned(on, std::numeric_limits<std::size_t>::max()); }

  /// All values of the layers' parts.
  void write(int value) {
    for (const auto& x : memory)
      std::memset(readable(x.get()), value, part_bytes);
  }

  /// Two layers of two parts each. Returns when they may be written to.
  void leave(snapshot_departures& by) {
    departure x{{7}, {}, {taker}, {}, {}};
    std::vector<std::future<void>> copied;
    for (std::uint32_t n = 0; n < 2; ++n) {
      auto& layer = x.layers.emplace_back();
      layer.number = n;
      layer.takers = {0};
      for (std::size_t i = 0; i < 2; ++i)
        layer.parts.push_back({memory_view(std::span(memory.at(2 * n + i).get(), part_bytes), &on), nullptr});
      copied.push_back(layer.copied.get_future());
    }
    by.depart(std::move(x));
    for (auto& y : copied) {
      ASSERT_EQ(y.wait_for(10s), std::future_status::ready);
      y.get();
    }
    ASSERT_TRUE(eventually([&] { return !by.under_way(); }));
  }

  device& on = late_fake_device(1);
  std::vector<device_memory> memory = [this] {
    std::vector<device_memory> all;
    for (int i = 0; i < 4; ++i)
      all.push_back(on.allocate(part_bytes));
    return all;
  }();
  std::shared_ptr<kept_stream> taker = std::make_shared<kept_stream>();
};

// given: one snapshot after the other, each of which is written over when it may be / expected: every byte of each, in
// memory that the device copied it to, and which the next one takes again
TEST_F(snapshot_departure, bytes_go_straight_into_memory_that_is_kept) {
  snapshot_departures by(on);
  std::set<const std::byte*> places;
  for (int value = 1; value <= 5; ++value) {
    write(value);
    leave(by);
    write(0);
    const auto got = taker->take();
    ASSERT_TRUE(got);
    ASSERT_EQ(got->shards.size(), 2u);
    for (const auto& shard : got->shards) {
      ASSERT_EQ(shard->parts.size(), 2u);
      for (const auto part : shard->parts) {
        ASSERT_EQ(part.size(), part_bytes);
        EXPECT_TRUE(is_pinned(part.data(), part.size()));
        EXPECT_TRUE(std::ranges::all_of(part, [&](auto x) { return x == static_cast<std::byte>(value); }));
        places.insert(part.data());
      }
    }
  }
  EXPECT_EQ(places.size(), 4u);
}

// given: no pinned memory to be had for one snapshot / expected: it is not sent, training hears nothing of it, and the
// next is sent
TEST_F(snapshot_departure, without_memory_there_is_none) {
  snapshot_departures by(on);
  allow_pinned(on, part_bytes);
  leave(by);
  EXPECT_FALSE(taker->take());
  allow_pinned(on, 10 * part_bytes);
  leave(by);
  EXPECT_TRUE(taker->take());
}

} // namespace
} // namespace parcae
