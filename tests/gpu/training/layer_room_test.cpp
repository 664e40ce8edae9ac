// Buffers that a worker without a place keeps ready.

#include "gpu/training/layer_room.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace parcae {
namespace {

model_description small_model() {
  model_specification x;
  x.kind = "mlp";
  x.layers = 2;
  x.width = 8;
  return describe(x);
}

int made(layer_room& x) {
  int result = 0;
  while (x.more())
    ++result;
  return result;
}

std::int64_t values_of(const model_description& model, std::uint32_t layer) {
  return static_cast<std::int64_t>(model.layers.at(layer).parameters());
}

// given: room for two layers, three buffers each / expected: as many; each is taken once, zero; what lacks is made
TEST(layer_room, has_what_it_was_asked_for) {
  const auto model = small_model();
  layer_room room(processor());
  EXPECT_EQ(made(room), 0);
  const std::vector<std::uint32_t> layers{1, 2};
  room.want(model, layers, 3);
  EXPECT_EQ(made(room), 6);
  std::set<const void*> seen;
  std::vector<at::Tensor> taken;
  for (const auto layer : {1, 1, 1, 2, 2, 2, 2}) {
    const auto x = room.take(values_of(model, layer));
    EXPECT_EQ(x.numel(), values_of(model, layer));
    EXPECT_TRUE(std::all_of(x.data_ptr<float>(), x.data_ptr<float>() + x.numel(), [](float y) { return y == 0; }));
    seen.insert(x.data_ptr());
    taken.push_back(x);
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(made(room), 0) << "what was taken is not made again";
}

// given: room for a layer, then for it and another, then for a third alone, and one that the model has not / expected:
// what is there counts; what is not wanted any more goes, and all of it in the end
TEST(layer_room, follows_what_is_wanted) {
  const auto model = small_model();
  ASSERT_NE(values_of(model, 0), values_of(model, 1));
  layer_room room(processor());
  room.want(model, std::vector<std::uint32_t>{0}, 2);
  EXPECT_EQ(made(room), 2);
  room.want(model, std::vector<std::uint32_t>{0, 1}, 2);
  EXPECT_EQ(made(room), 2);
  room.want(model, std::vector<std::uint32_t>{1, 1'000}, 2);
  EXPECT_EQ(made(room), 0);
  room.want(model, std::vector<std::uint32_t>{0}, 2);
  EXPECT_EQ(made(room), 2);
  room.want(model, std::vector<std::uint32_t>{0}, 2);
  room.clear();
  EXPECT_EQ(made(room), 0);
}

// given: a layer that no machine has the memory for / expected: nothing is kept ready, and nobody fails for it
TEST(layer_room, does_without_where_memory_is_short) {
  model_specification x;
  x.kind = "mlp";
  x.layers = 2;
  x.width = 1 << 22;
  layer_room room(processor());
  room.want(describe(x), std::vector<std::uint32_t>{1}, 3);
  EXPECT_FALSE(room.more());
  EXPECT_FALSE(room.more());
}

} // namespace
} // namespace parcae
