#include "protocols/base/mailbox.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace parcae {
namespace {

// given: two threads that put / expected: the one that takes gets all, those of each thread in their order
TEST(mailbox, keeps_the_order_of_each_sender) {
  constexpr int count = 10'000;
  mailbox<std::pair<int, int>> box;
  std::vector<std::thread> senders;
  for (int sender = 0; sender < 2; ++sender)
    senders.emplace_back([&box, sender] {
      for (int i = 0; i < count; ++i)
        box.put({sender, i});
    });
  int next[2] = {0, 0};
  for (int i = 0; i < 2 * count; ++i) {
    const auto x = box.take();
    ASSERT_TRUE(x);
    EXPECT_EQ(x->second, next[x->first]++);
  }
  for (auto& x : senders)
    x.join();
  EXPECT_FALSE(box.take_at_once());
}

// given: one that waits for something / expected: it gets what comes, and nothing when it is closed
TEST(mailbox, who_waits_is_woken) {
  mailbox<int> box;
  std::vector<int> seen;
  std::thread reader([&] {
    while (const auto x = box.take())
      seen.push_back(*x);
  });
  box.put(1);
  box.put(2);
  while (box.next_is([](int) { return true; }))
    std::this_thread::yield();
  box.close();
  reader.join();
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
}

// given: closed with something in it / expected: nothing is taken any more, nothing put; what is in it stays until
// drop()
TEST(mailbox, closed_gives_and_takes_nothing) {
  mailbox<std::shared_ptr<int>> box;
  const auto x = std::make_shared<int>();
  box.put(x);
  EXPECT_FALSE(box.is_closed());
  box.close();
  EXPECT_TRUE(box.is_closed());
  box.put(x);
  EXPECT_FALSE(box.replace(x, [](const auto&) { return true; }));
  EXPECT_FALSE(box.take());
  EXPECT_FALSE(box.take_at_once());
  EXPECT_EQ(x.use_count(), 2);
  box.drop();
  EXPECT_EQ(x.use_count(), 1);
}

// given: 1 2 3 2 / expected: the first 2 gives way, in its place; what replaces nothing comes last
TEST(mailbox, replaces_the_first) {
  mailbox<int> box;
  for (const int x : {1, 2, 3, 2})
    box.put(x);
  EXPECT_EQ(box.replace(20, [](int x) { return x == 2; }), 2);
  EXPECT_EQ(box.replace(30, [](int x) { return x == 7; }), std::nullopt);
  std::vector<int> all;
  while (const auto x = box.take_at_once())
    all.push_back(*x);
  EXPECT_EQ(all, (std::vector<int>{1, 20, 3, 2, 30}));
}

TEST(mailbox, tells_what_is_next) {
  mailbox<int> box;
  const auto is_two = [](int x) { return x == 2; };
  EXPECT_FALSE(box.next_is(is_two));
  box.put(1);
  box.put(2);
  EXPECT_FALSE(box.next_is(is_two));
  EXPECT_EQ(box.take(), 1);
  EXPECT_TRUE(box.next_is(is_two));
}

// given: elements whose destructors use the mailbox / expected: that does not wait for its lock
TEST(mailbox, destroys_without_its_lock) {
  mailbox<std::shared_ptr<void>> box;
  bool destroyed = false;
  box.put({nullptr, [&](void*) { destroyed = box.is_closed(); }});
  box.close();
  box.drop();
  EXPECT_TRUE(destroyed);
}

} // namespace
} // namespace parcae
