#include "tests/support/fake_device.hpp"

#include "protocols/base/mailbox.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace parcae {

namespace {

constexpr std::size_t arena_bytes = std::size_t{8} << 30; ///< addresses; memory is taken when it is used

/// The host's pinned memory, of all devices.
class pinned_memory {
public:
  std::byte* take(std::size_t n) {
    const std::lock_guard held(mutex_);
    const auto spare = spare_.extract(n);
    auto* x = spare ? spare.mapped() : static_cast<std::byte*>(::operator new (n, std::align_val_t{256}));
    parts_[x] = n;
    return x;
  }
  void give_back(std::byte* x, std::size_t n) {
    const std::lock_guard held(mutex_);
    parts_.erase(x);
    spare_.emplace(n, x);
  }
  bool has(const std::byte* x, std::size_t n) {
    const std::lock_guard held(mutex_);
    auto after = parts_.upper_bound(x);
    if (after == parts_.begin())
      return false;
    --after;
    return x + n <= after->first + after->second;
  }
  std::size_t bytes() {
    const std::lock_guard held(mutex_);
    return std::transform_reduce(parts_.begin(), parts_.end(), std::size_t{0}, std::plus{},
                                 [](const auto& x) { return x.second; });
  }

private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> parts_;
  std::multimap<std::size_t, std::byte*> spare_; ///< by size; kept, as a GPU's is
};

pinned_memory pinned;

/// A device's memory, in parts whose sizes are powers of two.
class arena {
public:
  explicit arena(std::uint32_t number) : of(number) {
    const int file = ::memfd_create("fake device", 0);
    if (file < 0 || ::ftruncate(file, arena_bytes) != 0)
      throw device_error("no memory for a fake device");
    given_ = map(file, PROT_NONE);
    readable_ = map(file, PROT_READ | PROT_WRITE);
    ::close(file);
  }

  std::byte* allocate(std::size_t bytes) {
    const auto n = std::bit_ceil(std::max<std::size_t>(bytes, 256));
    std::byte* result = nullptr;
    {
      const std::lock_guard held(mutex_);
      if (limit_ > 0 && taken_ + kept_ + n > limit_)
        throw device_error("a fake device is full");
      auto& free = free_[std::countr_zero(n)];
      if (!free.empty()) {
        result = free.back();
        free.pop_back();
      } else {
        if (used_ + n > arena_bytes)
          throw device_error("a fake device has no addresses left");
        result = given_ + used_;
        used_ += n;
      }
      sizes_[result] = n;
      peak_ = std::max(peak_, taken_ += n);
    }
    std::memset(readable(result), 0xA5, bytes); // whoever thinks that it is 0 is wrong
    return result;
  }

  void free(std::byte* x) {
    const std::lock_guard held(mutex_);
    const auto part = sizes_.extract(x);
    taken_ -= part.mapped();
    free_[std::countr_zero(part.mapped())].push_back(x);
  }

  bool is_given_out(const std::byte* x, std::size_t n) {
    const std::lock_guard held(mutex_);
    auto after = sizes_.upper_bound(const_cast<std::byte*>(x));
    if (after == sizes_.begin())
      return false;
    --after;
    return x + n <= after->first + after->second;
  }

  void limit(std::size_t left, std::size_t kept, std::uint32_t again) {
    const std::lock_guard held(mutex_);
    limit_ = taken_ + left + kept;
    kept_ = kept;
    again_ = again;
    given_back_ = 0;
  }
  void unlimit() {
    const std::lock_guard held(mutex_);
    limit_ = kept_ = 0;
  }
  void give_back_kept() {
    const std::lock_guard held(mutex_);
    if (++given_back_ > again_)
      kept_ = 0;
  }
  std::uint32_t given_back() {
    const std::lock_guard held(mutex_);
    return given_back_;
  }

  std::size_t peak() {
    const std::lock_guard held(mutex_);
    return peak_;
  }
  void begin_peak() {
    const std::lock_guard held(mutex_);
    peak_ = taken_;
  }

  bool has(const void* x) const {
    return static_cast<const std::byte*>(x) >= given_ && static_cast<const std::byte*>(x) < given_ + arena_bytes;
  }
  std::byte* readable(const void* x) const { return readable_ + (static_cast<const std::byte*>(x) - given_); }

  const std::uint32_t of; ///< the device's number

private:
  static std::byte* map(int file, int protection) {
    void* x = ::mmap(nullptr, arena_bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (x == MAP_FAILED)
      throw device_error("no addresses for a fake device");
    return static_cast<std::byte*>(x);
  }

  std::byte* given_ = nullptr;
  std::byte* readable_ = nullptr;
  std::mutex mutex_;
  std::size_t used_ = 0;
  std::size_t taken_ = 0, peak_ = 0; ///< of what is given out
  std::size_t limit_ = 0, kept_ = 0; ///< of all; 0: none. By LibTorch's library
  std::uint32_t again_ = 0, given_back_ = 0;
  std::array<std::vector<std::byte*>, 64> free_; ///< by the logarithm of the size
  std::map<std::byte*, std::size_t> sizes_;      ///< of what is given out
};

class fake_event final : public event, public std::enable_shared_from_this<fake_event> {
public:
  bool done() const override { return wait(std::chrono::milliseconds(0)); }
  bool wait(std::chrono::milliseconds limit) const override {
    lock held(mutex_);
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!happened_ && std::chrono::steady_clock::now() < end)
      held.wait_until(changed_, end);
    return happened_;
  }
  void happen() {
    const lock held(mutex_);
    happened_ = true;
    at_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }
  explicit fake_event(bool timed) : timed_(timed) {}
  double ms_since(const event& before) const override {
    return std::chrono::duration<double, std::milli>(at() - dynamic_cast<const fake_event&>(before).at()).count();
  }

private:
  mutable mutex mutex_;
  mutable std::condition_variable changed_;
  bool happened_ GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point at_ GUARDED_BY(mutex_);

  const bool timed_;

  std::chrono::steady_clock::time_point at() const {
    if (!timed_)
      throw device_error("the time of an event that was recorded without");
    const lock held(mutex_);
    return happened_ ? at_ : throw device_error("the time of an event that has not happened");
  }
};

/// Kernels by the processor's, on the readable mapping.
class fake_stream : public stream {
public:
  explicit fake_stream(const arena& memory) : memory_(memory), below_(make_cpu_device({})) {}

  void copy(void* to, const void* from, std::size_t bytes) override {
    const auto *source = end_of_copy(from, bytes), *target = end_of_copy(to, bytes);
    work([=] { std::memcpy(const_cast<std::byte*>(target), source, bytes); });
  }
  void copy_from(void* to, const device& of, const void* from, std::size_t bytes) override;
  std::shared_ptr<event> record() override { return record(false); }
  std::shared_ptr<event> record_time() override { return record(true); }

  virtual void work(std::function<void()> f) = 0;

  std::atomic<std::uint64_t> records = 0;

  std::shared_ptr<event> record(bool timed) {
    auto x = std::make_shared<fake_event>(timed);
    work([x] { x->happen(); });
    ++records;
    return x;
  }

  void add_values(float* to, const float* left, const float* right, std::size_t n) override {
    compute("add_values", [=, this] { on().add_values(at(to), at(left), at(right), n); });
  }
  void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) override {
    compute("add_values", [=, this] { on().add_values(at(to), at(left), at(right), n); });
  }
  void round_values(bfloat16* to, const float* from, std::size_t n) override {
    compute("round_values", [=, this] { on().round_values(at(to), at(from), n); });
  }
  void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums,
                    std::size_t n) override {
    std::vector<const float*> all;
    for (const auto* x : sums)
      all.push_back(at(x));
    compute("add_in_order", [=, this] { on().add_in_order(order, at(to), all, n); });
  }
  void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                  bfloat16* copy, std::size_t n) override {
    compute("step_adamw",
            [=, this] { on().step_adamw(x, at(parameters), at(first), at(second), at(gradient), at(copy), n); });
  }
  void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
                std::size_t n) override {
    compute("step_sgd", [=, this] { on().step_sgd(x, at(parameters), at(moment), at(gradient), at(copy), n); });
  }
  void squared_norm(const float* x, std::size_t n, double* to) override {
    compute("squared_norm", [=, this] { on().squared_norm(at(x), n, at(to)); });
  }
  void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    compute("draw_normal", [=, this] { on().draw_normal(at(to), n, seed, scale, first); });
  }
  void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) override {
    compute("draw_uniform", [=, this] { on().draw_uniform(at(to), n, seed, scale, first); });
  }
  void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask,
                   std::uint64_t first) override {
    compute("drop_values", [=, this] { on().drop_values(at(to), at(from), n, mask, first); });
  }

private:
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

  const std::byte* end_of_copy(const void* x, std::size_t bytes) const {
    if (memory_.has(x))
      return memory_.readable(x);
    if (bytes > 0 && !pinned.has(static_cast<const std::byte*>(x), bytes))
      throw device_error("a copy to or from memory that is neither this device's nor pinned");
    return static_cast<const std::byte*>(x);
  }

  const arena& memory_;
  const std::unique_ptr<device> below_;
};

class prompt_stream final : public fake_stream {
public:
  using fake_stream::fake_stream;
  void wait_for(const event& x) override {
    if (!x.wait(std::chrono::minutes(1)))
      throw device_error("an event does not come");
  }

  void work(std::function<void()> f) override { f(); }
};

class late_stream final : public fake_stream {
public:
  explicit late_stream(const arena& memory) : fake_stream(memory), thread_([this] { run(); }) {}
  ~late_stream() override { // lets what was given end
    queue_.put({});
    thread_.join();
  }
  void wait_for(const event& x) override {
    work([x = dynamic_cast<const fake_event&>(x).shared_from_this()] { x->wait(std::chrono::minutes(1)); });
  }

  void work(std::function<void()> f) override { queue_.put(std::move(f)); }

private:
  void run() {
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
      compute_ = std::make_unique<late_stream>(memory_);
    else
      compute_ = std::make_unique<prompt_stream>(memory_);
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
    auto* x = pinned.take(bytes);
    return {x, [bytes](std::byte* y) { pinned.give_back(y, bytes); }};
  }
  std::unique_ptr<stream> make_stream() override { return std::make_unique<late_stream>(memory_); }
  std::uint64_t peak_bytes() const override { return memory_.peak(); }
  /// As if its library rounded up to whole pages of 2 MiB, all together.
  std::uint64_t peak_reserved_bytes() const override { return (memory_.peak() / (2 << 20) + 1) * (2 << 20); }
  void begin_peak() override { memory_.begin_peak(); }
  void give_back_kept() override { memory_.give_back_kept(); }
  stream& compute() override { return *compute_; }

  arena& memory() { return memory_; }
  void allow_pinned(std::size_t bytes) { allowed_ = bytes; }

private:
  device_facts facts_;
  mutable arena memory_;
  std::unique_ptr<fake_stream> compute_;
  std::atomic<std::size_t> allowed_ = std::numeric_limits<std::size_t>::max();
};

std::atomic<std::uint64_t> copies_between = 0;
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

little_memory::little_memory(device& on, std::size_t left, std::size_t kept, std::uint32_t again) : on_(on) {
  dynamic_cast<fake&>(on_).memory().limit(left, kept, again);
}

little_memory::~little_memory() {
  dynamic_cast<fake&>(on_).memory().unlimit();
}

std::uint32_t little_memory::given_back() const {
  return dynamic_cast<fake&>(on_).memory().given_back();
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
