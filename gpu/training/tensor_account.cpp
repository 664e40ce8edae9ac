#include "gpu/training/tensor_account.hpp"

#include <c10/core/CPUAllocator.h>

#include <mutex>
#include <new>
#include <utility>

namespace parcae {

namespace {

thread_local std::shared_ptr<tensor_account> present;

/// In front of the bytes given out.
struct header {
  at::DataPtr whole;
  std::uint64_t bytes;
  std::shared_ptr<tensor_account> account;
};

constexpr std::size_t room = 64; ///< keeps the alignment that kernels' bits depend on
static_assert(sizeof(header) <= room);

void give_back(void* bytes) {
  if (!bytes)
    return;
  auto* x = reinterpret_cast<header*>(static_cast<std::byte*>(bytes) - room);
  if (x->account)
    x->account->subtract(x->bytes);
  const auto whole = std::move(x->whole); // the memory that x is in
  x->~header();
}

class counting_allocator final : public at::Allocator {
public:
  explicit counting_allocator(at::Allocator* below) : below_(below) {}

  at::DataPtr allocate(std::size_t n) override {
    if (n == 0)
      return below_->allocate(0);
    auto whole = below_->allocate(n + room);
    auto* begin = static_cast<std::byte*>(whole.get());
    const auto device = whole.device();
    if (present)
      present->add(n);
    new (begin) header{std::move(whole), n, present};
    return {begin + room, begin + room, &give_back, device};
  }

  at::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* to, const void* from, std::size_t n) const override { below_->copy_data(to, from, n); }

private:
  at::Allocator* below_;
};

} // namespace

std::shared_ptr<tensor_account> tensor_account::make() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::SetCPUAllocator(new counting_allocator(c10::GetCPUAllocator()), 1); // which keeps it
  });
  return std::shared_ptr<tensor_account>(new tensor_account);
}

std::shared_ptr<tensor_account> tensor_account::of_this_thread() {
  return present;
}

void tensor_account::add(std::uint64_t bytes) {
  const auto now = now_ += bytes;
  auto peak = peak_.load();
  while (peak < now && !peak_.compare_exchange_weak(peak, now))
    continue;
}

tensor_account::scope::scope(std::shared_ptr<tensor_account> x) : before_(std::exchange(present, std::move(x))) {}

tensor_account::scope::~scope() {
  present = std::move(before_);
}

tensor_account::entry::entry(std::shared_ptr<tensor_account> to, std::uint64_t bytes) :
    account_(std::move(to)), bytes_(bytes) {
  if (account_)
    account_->add(bytes_);
}

tensor_account::entry::~entry() {
  if (account_)
    account_->subtract(bytes_);
}

} // namespace parcae
