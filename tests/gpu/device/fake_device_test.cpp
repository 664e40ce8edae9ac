// That fake devices find out what they are for, and that LibTorch computes with them.

#include "tests/support/fake_device.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cstring>

namespace parcae {
namespace {

at::Device place(std::uint32_t number) {
  know_fake_devices();
  return at::Device(fake_device(number).facts().place);
}

// given: a processor that touches a device's memory / expected: it crashes
TEST(fake_device_death, memory_cannot_be_touched) {
  const auto x = at::ones({4}, at::TensorOptions(place(0)));
  EXPECT_EXIT(std::exit(static_cast<int>(*x.data_ptr<float>())), ::testing::KilledBySignal(SIGSEGV), "");
}

// given: a copy whose end nobody waits for, many times / expected: it is not always there; after its event it is
TEST(fake_device, copies_are_late) {
  auto& x = fake_device(0);
  const auto from = x.allocate_pinned(4096), back = x.allocate_pinned(4096);
  const auto memory = x.allocate(4096);
  const auto copies = x.make_stream();
  int late = 0;
  for (int i = 0; i < 200; ++i) {
    std::memset(from.get(), i, 4096);
    copies->copy(memory.get(), from.get(), 4096);
    const auto there = copies->record();
    late += *static_cast<const std::byte*>(readable(memory.get())) != static_cast<std::byte>(i);
    x.compute().wait_for(*there);
    EXPECT_EQ(*static_cast<const std::byte*>(readable(memory.get())), static_cast<std::byte>(i));
    x.compute().copy(back.get(), memory.get(), 4096);
    EXPECT_EQ(std::memcmp(back.get(), from.get(), 4096), 0);
  }
  EXPECT_GT(late, 0);
}

// given: memory that a GPU could not copy from, and another device's / expected: errors
TEST(fake_device, wrong_memory_is_refused) {
  auto &x = fake_device(0), &other = fake_device(1);
  std::byte ordinary[64];
  const auto memory = x.allocate(64), theirs = other.allocate(64);
  EXPECT_THROW(x.compute().copy(memory.get(), ordinary, 64), device_error);
  EXPECT_THROW(x.compute().copy(memory.get(), theirs.get(), 64), device_error);
  auto* values = reinterpret_cast<float*>(theirs.get());
  EXPECT_THROW(x.compute().add_values(values, values, values, 16), device_error);
}

// given: the same network on two devices and on the processor / expected: the same gradients there, nearly the same
// here
TEST(fake_device, LibTorch_trains_there) {
  const auto gradient = [](at::Device at) {
    const auto w = at::arange(24, at::kFloat).reshape({4, 6}).div_(24).to(at).requires_grad_();
    const auto x = at::arange(12, at::kFloat).reshape({3, 4}).sin_().to(at);
    const auto y = at::layer_norm(at::gelu(x.matmul(w)).transpose(0, 1).contiguous(), {3});
    torch::autograd::backward({at::softmax(y, 0).narrow(0, 1, 2).pow(2).sum()}, {});
    EXPECT_EQ(w.grad().device(), at);
    return w.grad().to(at::kCPU);
  };
  know_fake_devices(); // LibTorch counts devices when it first goes backward
  const auto here = gradient(at::kCPU), there = gradient(place(2));
  EXPECT_TRUE(at::equal(gradient(place(5)), there));
  EXPECT_TRUE(at::allclose(here, there, 1e-5, 1e-7));
}

} // namespace
} // namespace parcae
