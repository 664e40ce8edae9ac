// What the way through the host's memory does that other ways do not.

#include "tests/gpu/dataplane/data_plane_fixture.hpp"
#include "tests/support/thrown_by.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <span>

namespace parcae {
namespace {

// given: a driver whose calls for pinned memory, or for a stream, do not return while the first message to or from a
// participant is given / expected: abort() returns; the message then fails, and what was made for it is given back
TEST(staged_communicator, aborts_while_a_lane_is_made) {
  using namespace parcae::rig;
  auto& on = late_fake_device(0);
  for (const auto call : {device_call::pin, device_call::make_stream})
    for (const bool receives : {false, true}) {
      SCOPED_TRACE(::testing::PrintToString(std::pair(static_cast<int>(call), receives)));
      cluster x(2);
      std::vector<std::unique_ptr<communicator>> ends(2);
      x.each([&](std::uint32_t i) {
        ends[i] = make_staged_communicator(x.ports[i]->connect(x.plan, x.slot(i), patience, x.never), on);
      });
      const auto memory = on.allocate(1'000);
      const memory_view view(std::span(memory.get(), 1'000), &on);
      const auto pinned = pinned_bytes();
      std::optional<stuck_calls> stuck(std::in_place, on, call);
      auto said = std::async(std::launch::async, [&] {
        const tag gradient{channel::gradient, 5, 2};
        return thrown_by<communication_error>(
            [&] { receives ? ends[0]->receive(1, gradient, view) : ends[0]->send(1, gradient, view); });
      });
      EXPECT_TRUE(eventually([&] { return stuck->calls() > 0; }));
      EXPECT_TRUE(stuck->are_not_in_the_way_of([&] { ends[0]->abort(); }));
      stuck.reset();
      EXPECT_EQ(said.get(), "aborted");
      EXPECT_EQ(pinned_bytes(), pinned);
    }
}

} // namespace
} // namespace parcae
