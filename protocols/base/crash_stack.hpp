#pragma once

// A stack for the signal handler of a thread whose own has overflowed.

#include <sys/mman.h>

#include <csignal>
#include <cstddef>

namespace parcae {

/// Gives the calling thread one (sigaltstack(2)), until it ends; without it a crash by a stack overflow leaves no last
/// words. Once per thread is enough, more does no harm. Nothing if there is no memory for it.
inline void use_crash_stack() {
  constexpr std::size_t bytes = 64 << 10;
  struct stack {
    void* memory = MAP_FAILED;

    stack() {
      stack_t present{};
      if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0)
        return; // a sanitizer's
      memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      stack_t mine{};
      mine.ss_sp = memory;
      mine.ss_size = bytes;
      if (memory != MAP_FAILED)
        sigaltstack(&mine, nullptr);
    }

    ~stack() {
      if (memory == MAP_FAILED)
        return;
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      sigaltstack(&none, nullptr);
      munmap(memory, bytes);
    }
  };
  static thread_local const stack of_this_thread;
}

} // namespace parcae
