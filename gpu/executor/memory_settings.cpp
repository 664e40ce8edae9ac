#include "gpu/executor/memory_settings.hpp"

#include <malloc.h>

#include <cstdlib>
#include <limits>

namespace parcae {

// Every step frees and takes the same memory again. Given back to the system in between, it comes back page by page,
// cleared: 2 to 3 % of a step's processor time. What is larger than glibc keeps does so all the same, and a
// generation's buffers do once: with pages of 4 KiB that was a quarter of a step whose layers have 64 MiB.
// What is kept is kept by arena, of which glibc has eight a core. Each change brings threads that take tensors (those
// of a preparation, a feed, a follower), in any of them: a process grew by 5 MB a change, until each had kept their
// most.
void keep_memory_for_tensors() {
  static const bool once = [] {
    setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    mallopt(M_MMAP_THRESHOLD, 32 << 20); // the most that glibc takes
    mallopt(M_ARENA_MAX, 4);
    return true;
  }();
  static_cast<void>(once);
}

void give_back_memory() {
  malloc_trim(0);
}

} // namespace parcae
