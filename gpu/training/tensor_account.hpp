#pragma once

// How much memory tensors take, by executor. Torch-free interface.

#include <atomic>
#include <cstdint>
#include <memory>

namespace parcae {

/// Bytes of the CPU tensors that were allocated by threads within a scope of this account, wherever they are freed. All
/// methods may be called from any thread. A process in which one was made allocates all CPU tensors with 64 bytes more,
/// which keep size and account.
class tensor_account {
public:
  static std::shared_ptr<tensor_account> make();

  /// That of the scope which the calling thread is in; null: it is in none.
  static std::shared_ptr<tensor_account> of_this_thread();

  /// A new peak from here on.
  void begin() { peak_ = now_.load(); }

  std::uint64_t now() const { return now_; }
  std::uint64_t peak() const { return peak_; } ///< most at once since begin()

  void add(std::uint64_t bytes);
  void subtract(std::uint64_t bytes) { now_ -= bytes; }

  /// What the calling thread allocates meanwhile is counted.
  class scope {
  public:
    explicit scope(std::shared_ptr<tensor_account> x);
    ~scope();
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;

  private:
    std::shared_ptr<tensor_account> before_;
  };

  /// Bytes that are no tensor's and count as well, as long as it lives. No account: nothing is counted.
  class entry {
  public:
    entry(std::shared_ptr<tensor_account> to, std::uint64_t bytes);
    ~entry();
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;

  private:
    std::shared_ptr<tensor_account> account_;
    std::uint64_t bytes_;
  };

private:
  tensor_account() = default;

  std::atomic<std::uint64_t> now_ = 0;
  std::atomic<std::uint64_t> peak_ = 0;
};

} // namespace parcae
