#include "tests/support/fake_device.hpp"

#include "protocols/base/mailbox.hpp"
#include "tests/support/borrowed_kernels.hpp"
#include "tests/support/fake_event.hpp"
#include "tests/support/fake_memory.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {

namespace {

std::atomic<std::uint64_t> copies_between = 0, copies_within = 0;

/// Kernels by the processor's, on the readable mapping.
class fake_stream : public stream {
public:
  fake_stream(const arena& memory, standstill& calls) : memory_(memory), calls_(calls), below_(make_cpu_device({})) {}

  void copy(void* to, const void* from, std::size_t bytes) override {
    const auto *source = end_of_copy(from, bytes), *target = end_of_copy(to, bytes);
    if (memory_.has(from) && memory_.has(to))
      ++copies_within;
    work([=] { std::memcpy(const_cast<std::byte*>(target), source, bytes); });
  }
  void copy_from(void* to, const device& of, const void* from, std::size_t bytes) override;
  std::shared_ptr<event> record() override { return record(false); }
  std::shared_ptr<event> record_time() override { return record(true); }

  virtual void work(std::function<void()> f) = 0;

  std::atomic<std::uint64_t> records = 0;

  std::shared_ptr<event> record(bool timed) {
    calls_.pass(device_call::record);
    auto x = std::make_shared<fake_event>(calls_, timed);
    work([x] { x->happen(); });
    ++records;
    return x;
  }

protected:
  stream& on() const { return below_->compute(); }

  void compute(const char* name, std::function<void()> f) {
    if (const auto see = watch_of_work())
      see(memory_.of, name, {});
    work(std::move(f));
  }

  template <class Value>
  Value* at(Value* x) const {
    if (!x)
      return nullptr;
    if (!memory_.has(x))
      throw device_error("an illegal memory access");
    return reinterpret_cast<Value*>(memory_.readable(x));
  }

private:
  const std::byte* end_of_copy(const void* x, std::size_t bytes) const {
    if (memory_.has(x))
      return memory_.readable(x);
    if (bytes > 0 && !pinned.has(static_cast<const std::byte*>(x), bytes))
      throw device_error("a copy to or from memory that is neither this device's nor pinned");
    return static_cast<const std::byte*>(x);
  }

  const arena& memory_;
  standstill& calls_;
  const std::unique_ptr<device> below_;
};

class prompt_stream final : public borrowed_kernels<fake_stream> {
public:
  using borrowed_kernels::borrowed_kernels;
  void wait_for(const event& x) override {
    if (!dynamic_cast<const fake_event&>(x).has_happened(std::chrono::minutes(1)))
      throw device_error("an event does not come");
  }

  void work(std::function<void()> f) override { f(); }
};

class late_stream final : public borrowed_kernels<fake_stream> {
public:
  late_stream(const arena& memory, standstill& calls) : borrowed_kernels(memory, calls), thread_([this] { run(); }) {}
  ~late_stream() override { // lets what was given end
    queue_.put({});
    thread_.join();
  }
  void wait_for(const event& x) override {
    work([x = dynamic_cast<const fake_event&>(x).shared_from_this()] { x->has_happened(std::chrono::minutes(1)); });
  }

  void work(std::function<void()> f) override { queue_.put(std::move(f)); }

private:
  void run() {
    fake_event::of_device = true;
    std::mt19937 draw(std::random_device{}());
    while (const auto f = queue_.take()) {
      if (!*f)
        return;
      if (draw() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(draw() % 300));
      (*f)();
    }
  }

  mailbox<std::function<void()>> queue_;
  std::thread thread_;
};

class fake final : public device {
public:
  fake(std::uint32_t number, bool late) : memory_(number) {
    if (late)
      compute_ = std::make_unique<late_stream>(memory_, calls_);
    else
      compute_ = std::make_unique<prompt_stream>(memory_, calls_);
    facts_.type = "fake";
    facts_.place = "privateuseone:" + std::to_string(number);
    facts_.name = facts_.computes_as = "a fake device";
    facts_.bytes = arena_bytes;
  }

  const device_facts& facts() const override { return facts_; }
  device_memory allocate(std::size_t bytes) override {
    return {memory_.allocate(bytes), [this](std::byte* x) { memory_.free(x); }};
  }
  device_memory allocate_pinned(std::size_t bytes) override {
    if (allowed_ < bytes)
      throw device_error("pinned memory: out of memory");
    calls_.pass(device_call::pin);
    auto* x = pinned.take(bytes);
    return {x, [bytes](std::byte* y) { pinned.give_back(y, bytes); }};
  }
  std::unique_ptr<stream> make_stream() override {
    calls_.pass(device_call::make_stream);
    return std::make_unique<late_stream>(memory_, calls_);
  }
  std::uint64_t peak_bytes() const override { return memory_.peak(); }
  /// As if its library rounded up to whole pages of 2 MiB, all together.
  std::uint64_t peak_reserved_bytes() const override { return (memory_.peak() / (2 << 20) + 1) * (2 << 20); }
  void begin_peak() override { memory_.begin_peak(); }
  std::uint64_t shortages() const override { return shortages_; }
  void give_back_kept() override { memory_.give_back_kept(); }
  stream& compute() override { return *compute_; }

  arena& memory() { return memory_; }
  standstill& calls() { return calls_; }
  void allow_pinned(std::size_t bytes) { allowed_ = bytes; }
  void note_shortage() { ++shortages_; }

private:
  device_facts facts_;
  mutable arena memory_;
  standstill calls_;
  std::unique_ptr<fake_stream> compute_;
  std::atomic<std::uint64_t> shortages_ = 0;
  std::atomic<std::size_t> allowed_ = std::numeric_limits<std::size_t>::max();
};

std::atomic<bool> copies_are_spoilt = false;

std::mutex watch_mutex;
work_watch watch;

std::mutex devices_mutex;
std::array<std::array<fake*, fake_devices>, 2> devices{}; ///< prompt, late; never destroyed: LibTorch keeps tensors

fake& numbered(std::uint32_t number, bool late) {
  const std::lock_guard held(devices_mutex);
  auto& x = devices.at(late).at(number);
  if (!x)
    x = new fake(number, late);
  return *x;
}

fake& owner_of(const void* x) {
  const std::lock_guard held(devices_mutex);
  for (const auto& kind : devices)
    for (auto* device : kind)
      if (device && device->memory().has(x))
        return *device;
  throw device_error("an address that no fake device has given out");
}

void fake_stream::copy_from(void* to, const device& of, const void* from, std::size_t bytes) {
  if (bytes == 0)
    return;
  auto* target = at(static_cast<std::byte*>(to));
  if (!is_given_out(to, bytes) || !is_given_out(from, bytes))
    throw device_error("an illegal memory access");
  auto& source = owner_of(from).memory();
  if ("privateuseone:" + std::to_string(source.of) != of.facts().place)
    throw device_error("a copy from memory that is not that device's");
  const auto* begin = source.readable(from);
  ++copies_between;
  work([=] {
    std::memcpy(target, begin, bytes);
    if (copies_are_spoilt)
      target[bytes / 2] ^= std::byte{1};
  });
}

} // namespace

device& fake_device(std::uint32_t number) {
  return numbered(number, false);
}

device& late_fake_device(std::uint32_t number) {
  return numbered(number, true);
}

void give_work(stream& on, std::function<void()> f) {
  dynamic_cast<fake_stream&>(on).work(std::move(f));
}

std::uint64_t events_of(const stream& x) {
  return dynamic_cast<const fake_stream&>(x).records;
}

std::uint64_t copies_between_devices() {
  return copies_between;
}

std::uint64_t copies_within_devices() {
  return copies_within;
}

spoilt_copies::spoilt_copies() {
  copies_are_spoilt = true;
}
spoilt_copies::~spoilt_copies() {
  copies_are_spoilt = false;
}

void watch_work(work_watch f) {
  const std::lock_guard held(watch_mutex);
  watch = std::move(f);
}

work_watch watch_of_work() {
  const std::lock_guard held(watch_mutex);
  return watch;
}

bool is_given_out(const void* x, std::size_t bytes) {
  return owner_of(x).memory().is_given_out(static_cast<const std::byte*>(x), bytes);
}

std::function<bool()> given_back_since(const void* x, std::size_t bytes) {
  return [watched = owner_of(x).memory().watch(static_cast<const std::byte*>(x), bytes)] {
    return watched->given_back.load();
  };
}

little_memory::little_memory(device& on, std::size_t left, std::size_t kept, std::uint32_t again) : on_(on) {
  dynamic_cast<fake&>(on_).memory().limit(left, kept, again);
}

little_memory::~little_memory() {
  dynamic_cast<fake&>(on_).memory().unlimit();
}

std::uint32_t little_memory::given_back() const {
  return dynamic_cast<fake&>(on_).memory().given_back();
}

void run_short(device& on) {
  dynamic_cast<fake&>(on).note_shortage();
}

stuck_calls::stuck_calls(device& on, device_call what) : on_(on) {
  dynamic_cast<fake&>(on_).calls().close(what);
}

stuck_calls::~stuck_calls() {
  dynamic_cast<fake&>(on_).calls().open();
}

std::uint32_t stuck_calls::calls() const {
  return dynamic_cast<fake&>(on_).calls().there();
}

bool stuck_calls::are_not_in_the_way_of(const std::function<void()>& f) {
  const auto returns = std::async(std::launch::async, f);
  const bool in_time = returns.wait_for(std::chrono::seconds(20)) == std::future_status::ready && calls() > 0;
  if (!in_time)
    dynamic_cast<fake&>(on_).calls().open();
  return in_time;
}

std::size_t pinned_bytes() {
  return pinned.bytes();
}

bool is_pinned(const void* x, std::size_t bytes) {
  return pinned.has(static_cast<const std::byte*>(x), bytes);
}

void allow_pinned(device& of, std::size_t bytes) {
  dynamic_cast<fake&>(of).allow_pinned(bytes);
}

void* readable(const void* x) {
  return owner_of(x).memory().readable(x);
}

} // namespace parcae
