// LibTorch's tensors on fake devices, by its keys for devices of others (PrivateUse1): making, copying and viewing them
// is here, all else its operators for the processor do, on copies.

#include "tests/support/fake_device.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace parcae {

namespace {

constexpr auto fake_type = c10::DeviceType::PrivateUse1;

thread_local c10::DeviceIndex present = 0;

class fake_guard final : public c10::impl::DeviceGuardImplInterface {
public:
  c10::DeviceType type() const override { return fake_type; }
  c10::Device exchangeDevice(c10::Device x) const override {
    return {fake_type, std::exchange(present, x.index() < 0 ? present : x.index())};
  }
  c10::Device getDevice() const override { return {fake_type, present}; }
  void setDevice(c10::Device x) const override { exchangeDevice(x); }
  void uncheckedSetDevice(c10::Device x) const noexcept override { exchangeDevice(x); }
  c10::Stream getStream(c10::Device x) const override { return c10::Stream(c10::Stream::DEFAULT, x); }
  c10::Stream exchangeStream(c10::Stream x) const override { return x; }
  c10::DeviceIndex deviceCount() const noexcept override { return fake_devices; }
};

/// What autograd asks of an accelerator.
struct fake_hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  void init() const override {}
  const at::Generator& getDefaultGenerator(c10::DeviceIndex x) const override { return generators_.at(x); }

private:
  /// One for each device, whoever computes there.
  const std::vector<at::Generator> generators_ = [] {
    std::vector<at::Generator> all;
    for (std::uint32_t i = 0; i < fake_devices; ++i)
      all.push_back(at::detail::createCPUGenerator());
    return all;
  }();
};

class fake_allocator final : public c10::Allocator {
public:
  c10::DataPtr allocate(std::size_t n) override {
    const c10::Device place(fake_type, present);
    if (n == 0)
      return {nullptr, place};
    auto& on = fake_device(static_cast<std::uint32_t>(present));
    try {
      auto memory = std::make_unique<device_memory>(on.allocate(n));
      auto* bytes = memory->get();
      return {bytes, memory.release(), [](void* x) { delete static_cast<device_memory*>(x); }, place};
    } catch (const device_error& e) { // as CUDA's allocator says it
      run_short(on);
      C10_THROW_ERROR(OutOfMemoryError, e.what());
    }
  }
  void copy_data(void* to, const void* from, std::size_t n) const override {
    std::memcpy(readable(to), readable(from), n);
  }
};

fake_allocator* allocator() {
  static fake_allocator it;
  return &it;
}

at::Tensor make_empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                      std::optional<at::Device> place, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(place.value_or(at::Device(fake_type)));
  return at::detail::empty_generic(size, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

at::Tensor make_empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                              std::optional<at::Layout>, std::optional<at::Device> place, std::optional<bool>) {
  const c10::DeviceGuard guard(place.value_or(at::Device(fake_type)));
  return at::detail::empty_strided_generic(
      size, stride, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

/// The same values, as the processor can read and write them.
at::Tensor seen_by_processor(const at::Tensor& x) {
  if (x.is_cpu() || x.numel() == 0)
    return x.is_cpu() ? x : at::empty(x.sizes(), x.options().device(at::kCPU));
  return at::from_blob(readable(x.const_data_ptr()), x.sizes(), x.strides(), x.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  seen_by_processor(to).copy_(seen_by_processor(from));
  return to;
}

const at::Tensor& resize_in_place(const at::Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = x.unsafeGetTensorImpl();
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(size)) * x.itemsize();
  if (x.storage().nbytes() < bytes) {
    const c10::DeviceGuard guard(x.device());
    x.storage().set_data_ptr_noswap(allocator()->allocate(bytes));
    x.storage().set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  return x;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes())
    resize_in_place(to, from.sizes(), {});
  return copy_from(from, to, false);
}

/// To whoever watches.
void tell_of(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  const auto see = watch_of_work();
  if (!see)
    return;
  std::optional<c10::DeviceIndex> on;
  std::string sizes;
  const auto add = [&](const at::Tensor& x) {
    if (!x.defined())
      return;
    sizes += c10::str(" ", x.scalar_type(), x.sizes());
    if (x.device().type() == fake_type)
      on = x.device().index();
  };
  for (const auto& x : arguments)
    if (x.isTensor())
      add(x.toTensor());
    else if (x.isTensorList())
      for (const at::Tensor& y : x.toTensorList())
        add(y);
  if (on)
    see(static_cast<std::uint32_t>(*on), name, sizes);
}

// Convolutions are asked of the device by names of their own.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                    at::IntArrayRef output_padding, std::int64_t groups) {
  tell_of("convolution", {x, weight});
  const auto here = [](const at::Tensor& y) { return y.to(at::kCPU); };
  const auto added = bias && bias->defined() ? std::optional(here(*bias)) : std::nullopt;
  return at::convolution(here(x), here(weight), added, stride, padding, dilation, transposed, output_padding, groups)
      .to(x.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor>
gradients_of_convolution(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight,
                         at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                         at::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> wanted) {
  tell_of("convolution_backward", {x, weight});
  const std::vector<std::int64_t> channels{gradient.size(1)};
  auto [of_x, of_weight, of_bias] = at::convolution_backward(gradient.to(at::kCPU), x.to(at::kCPU), weight.to(at::kCPU),
                                                             at::OptionalIntArrayRef(channels), stride, padding,
                                                             dilation, transposed, output_padding, groups, wanted);
  const auto there = [&](const at::Tensor& y) { return y.defined() ? y.to(x.device()) : y; };
  return {there(of_x), there(of_weight), there(of_bias)};
}

/// By numbers of the device's generator.
std::tuple<at::Tensor, at::Tensor> drop(const at::Tensor& x, double p, std::optional<bool> training) {
  tell_of("native_dropout", {x});
  if (!training.value_or(true))
    return {x.clone(), at::ones(x.sizes(), x.options().dtype(at::kBool))};
  const auto kept = at::bernoulli(at::full(x.sizes(), 1 - p), at::globalContext().defaultGenerator(x.device()));
  return {(x.to(at::kCPU) * (kept / (1 - p)).to(x.scalar_type())).to(x.device()), kept.to(at::kBool).to(x.device())};
}

void by_processor(const c10::OperatorHandle& x, torch::jit::Stack* stack) {
  tell_of(x.operator_name().name, torch::jit::last(*stack, x.schema().arguments().size()));
  at::native::cpu_fallback(x, stack);
}

} // namespace

void know_fake_devices() {
  static const bool once = [] {
    c10::register_privateuse1_backend("privateuseone"); // under its own name
    at::RegisterPrivateUse1HooksInterface(new fake_hooks);
    static const c10::impl::DeviceGuardImplRegistrar guard(fake_type, new fake_guard);
    c10::SetAllocator(fake_type, allocator());
    using torch::Library;
    static Library others(Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    others.fallback(torch::CppFunction::makeFromBoxedFunction<&by_processor>());
    static Library own(Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
    own.impl("empty.memory_format", &make_empty);
    own.impl("empty_strided", &make_empty_strided);
    own.impl("_copy_from", &copy_from);
    own.impl("_copy_from_and_resize", &copy_from_and_resize);
    own.impl("resize_", &resize_in_place);
    own.impl("as_strided", &at::native::as_strided_tensorimpl);
    own.impl("convolution_overrideable", &convolve);
    own.impl("convolution_backward_overrideable", &gradients_of_convolution);
    own.impl("native_dropout", &drop);
    own.impl("view", &at::native::view);
    own.impl("_reshape_alias", &at::native::_reshape_alias);
    return true;
  }();
  static_cast<void>(once);
}

} // namespace parcae
